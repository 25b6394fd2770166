"""How near the stored logs of a project are to its limit, and what is said about it. Pure.

People are told at 80 % and at 95 %. From 100 % on the project takes no new jobs, and the logs of running jobs go on.
From 125 % on nothing more of its logs is stored: the hosts keep the rest, which is fetched when there is room again.
"""

from __future__ import annotations

from collections.abc import Sequence

from agents.infra.texts import join, said
from jobs.rules.scheduling.quota import GB

FULL, STOPPED = 100, 125
LEVELS = (80, 95, FULL, STOPPED)
# So far the share must fall below a level before the level is left: what goes up and down there is told once.
MARGIN = 2


def level_of(stored: int, limit_gb: float, before: int = 0, levels: Sequence[int] = LEVELS) -> int:
    """The highest level that is reached, in percent of the limit; 0 below all of them."""
    limit = limit_gb * GB
    reached = [level for level in levels if stored * 100 >= level * limit]
    # Where storing stops is exact, in both directions: whoever deletes logs sees that it goes on.
    kept = [
        level for level in levels if level <= before < STOPPED and stored * 100 >= (level - MARGIN) * limit
    ]
    return max((*reached, *kept), default=0)


def text(project: str, level: int, stored: int, limit_gb: float) -> str:
    """What people read at this level; empty below all of them."""
    if level < LEVELS[0]:
        return ""
    used = said(
        "The logs of project {project} take {stored} GB of {limit} GB.",
        project=project,
        stored=f"{stored / GB:.2f}",
        limit=f"{limit_gb:g}",
    )
    cure = said("Delete jobs that are over, with their logs; or an admin of the deployment may allow more.")
    return join(" ", [used, _effect(level, limit_gb), cure])


def _effect(level: int, limit_gb: float) -> str:
    if level >= STOPPED:
        return said(
            "Nothing more of them is stored. The hosts keep the rest of the logs of running jobs, and it is fetched "
            "when there is room again."
        )
    if level >= FULL:
        return said(
            "It takes no new jobs. Running jobs go on, and their logs are stored up to {most} GB.",
            most=f"{limit_gb * STOPPED / 100:g}",
        )
    return said("At the limit it takes no new jobs.")


def held_text(project: str, stored: int, limit_gb: float, byte: int) -> str:
    """Where the stored part of one log ends, and why."""
    return said(
        "Storing stopped at byte {byte}: the logs of project {project} take {stored} GB, and it may store {limit} GB. "
        "The host keeps the rest, which is fetched when jobs that are over were deleted, or when an admin has allowed "
        "more.",
        byte=byte,
        project=project,
        stored=f"{stored / GB:.2f}",
        limit=f"{limit_gb:g}",
    )
