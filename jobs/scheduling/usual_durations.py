"""How long jobs of a kind ran lately: those of the same person and project, with the same request, that succeeded."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from agents.infra.sql import SelectStatement
from jobs.models import Job
from jobs.rules.lifecycle.states import JobState

# So many jobs are looked at, the newest first; of so few of a kind nothing is concluded.
LATEST, FEWEST = 2_000, 3

Kind = tuple[int, int | None, str]

_ended = SelectStatement(
    lambda: (
        Job.every.filter(state=JobState.SUCCEEDED, started_at__isnull=False, ended_at__isnull=False)
        .order_by("-id")
        .values_list("project", "owner", "resource_request", "started_at", "ended_at")[:LATEST]
    )
)


@dataclass(frozen=True, slots=True)
class UsualDurations:
    """In seconds, by kind, sorted."""

    by_kind: Mapping[Kind, list[float]] = field(default_factory=dict)

    def of(self, kind: Kind, already: float = 0.0) -> float | None:
        """How long a job of the kind runs, in the middle of those that ran longer than this one has `already`. None
        if too few are known."""
        known = self.by_kind.get(kind, [])
        longer = known[bisect_right(known, already) :]
        return longer[len(longer) // 2] if len(known) >= FEWEST and longer else None


def read_usual_durations() -> UsualDurations:
    found: defaultdict[Kind, list[float]] = defaultdict(list)
    for project, owner, request, started_at, ended_at in _ended():
        found[project, owner, request].append(max((ended_at - started_at).total_seconds(), 0.0))
    return UsualDurations({kind: sorted(of) for kind, of in found.items()})
