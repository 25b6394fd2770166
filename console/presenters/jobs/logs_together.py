"""Which logs of a job of very many replicas are shown together."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Min
from django.utils import timezone

from console.presenters import badges
from console.presenters.jobs.replicas import replica_lines
from console.presenters.metrics.utilization import current_use
from jobs.models import Job
from jobs.rules.lifecycle.states import ReplicaState

# What a page can show, and a console follow for it, at once.
MAX_REPLICAS = 128
NOTABLE = frozenset({ReplicaState.FAILED, badges.UNREACHABLE.value})


@dataclass(frozen=True, slots=True)
class LogsTogether:
    """`names`: those that are shown, or empty for all. `total`: how many the job has. `wanted`: how many were asked
    for. `left_out`: not all of them are shown.
    """

    names: tuple[str, ...]
    total: int
    wanted: int

    @property
    def shown(self) -> int:
        return len(self.names) or self.total

    @property
    def left_out(self) -> bool:
        return self.wanted > self.shown


def logs_together(job: Job, asked: Collection[str] = ()) -> LogsTogether:
    """Of more than MAX_REPLICAS: rank 0, those that failed, cannot be reached or are unusually quiet, then by rank.

    Names in `asked` that the job does not have are left out.
    """
    total = job.replicas.count()
    if not asked and total <= MAX_REPLICAS:
        return LogsTogether((), total, total)
    if len(asked) <= MAX_REPLICAS and asked:
        names = tuple(
            job.replicas.filter(name__in=asked).order_by("pool", "index").values_list("name", flat=True)
        )
        return LogsTogether(names, total, len(names) or total)
    lines = tuple(replica_lines(job, shells=False))
    odd = {use.replica for use in current_use(lines, timezone.now()) if use.odd}
    wanted = [line for line in lines if not asked or line.name in asked]
    notable = {line.name for line in wanted if line.name in odd or line.badge.value in NOTABLE}
    if wanted:
        notable.add(wanted[0].name)
    chosen = [line.name for line in sorted(wanted, key=lambda line: line.name not in notable)[:MAX_REPLICAS]]
    kept = set(chosen)
    return LogsTogether(tuple(line.name for line in wanted if line.name in kept), total, len(wanted))


def began_at(job: Job) -> str:
    """The second since 1970 at which its first run began, as a script reads it; empty if none has."""
    first = job.runs.aggregate(at=Min("started_at"))["at"]
    return f"{first.timestamp():.3f}" if first else ""
