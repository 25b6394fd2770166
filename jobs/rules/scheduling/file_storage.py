"""How near the stored files of a project are to its quota, and what is said about it. Pure.

At 100 % nothing more is stored: each upload that would exceed the quota is refused, whatever the level is.
"""

from __future__ import annotations

from agents.infra.texts import join, said
from jobs.rules.scheduling.quota import GB

LEVELS = (80, 95, 100)


def text(project: str, level: int, stored: int, limit_gb: float) -> str:
    """What people read at this level."""
    used = said(
        "The files of project {project} take {stored} GB of {limit} GB.",
        project=project,
        stored=f"{stored / GB:.2f}",
        limit=f"{limit_gb:g}",
    )
    effect = (
        said("Nothing more is stored. Outputs of jobs stay on their hosts until there is room.")
        if level >= LEVELS[-1]
        else said("At the limit nothing more is stored, and outputs of jobs stay on their hosts.")
    )
    cure = said(
        "Delete objects or artifacts that no job needs, or let a bucket delete old ones by itself; or an admin of the "
        "deployment may allow more."
    )
    return join(" ", [used, effect, cure])
