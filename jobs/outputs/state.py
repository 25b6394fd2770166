"""How far the outputs of a job are stored, host by host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Q, Sum

from jobs.models import HostOutputs, Job, OutputFile, OutputStage

# How long after the end of a job its files are waited for while they do not come, and how long at most.
PATIENCE, LONGEST = timedelta(minutes=10), timedelta(days=1)
_coming = Q(stage__in=(OutputStage.WRITING, OutputStage.ENDING), settled_at=None)


@dataclass(frozen=True, slots=True)
class HostState:
    """`files` and `bytes` are all that the host listed last; `stored_files` and `stored_bytes` what is here of it."""

    host: str
    stage: OutputStage
    files: int
    bytes: int
    stored_files: int
    stored_bytes: int
    moving_path: str
    problem: str
    looked_at: datetime | None
    left_out: Mapping[str, int]
    is_filled: bool
    fill_done: int
    fill_total: int

    @property
    def is_open(self) -> bool:
        """Whether something may still be on the host only."""
        return self.stage in (OutputStage.WRITING, OutputStage.ENDING)

    @property
    def left_files(self) -> int:
        return self.files - self.stored_files


def is_coming(job: Job, now: datetime) -> bool:
    """Whether files of a job that is over are not stored yet, and will be soon: then what names them waits for them.

    A host that does not answer, or a full quota, is waited for only so long. History says then where the files are.
    """
    passed = now - (job.ended_at or now)
    if passed >= LONGEST:
        return False
    rows = HostOutputs.objects.filter(_coming, job=job)
    return (rows.filter(problem="") if passed >= PATIENCE else rows).exists()


def left_on_hosts(jobs: Iterable[int]) -> dict[int, list[str]]:
    """By job, the hosts on which files lie that are not stored. One query."""
    kept = Q(stage=OutputStage.KEPT, dropped_at=None)
    rows = HostOutputs.objects.filter(_coming | kept, job__in=list(jobs)).order_by("host__name")
    found: dict[int, list[str]] = {}
    for job, name in rows.values_list("job", "host__name"):
        found.setdefault(job, []).append(name)
    return found


def of_job(job: Job) -> list[HostState]:
    there = Q(gone_at=None)
    here = there & Q(stored_at__isnull=False)
    grouped = OutputFile.objects.filter(outputs__job=job).order_by().values_list("outputs")
    summed = grouped.annotate(
        files=Count("pk", filter=there),
        bytes=Sum("size", filter=there, default=0),
        stored_files=Count("pk", filter=here),
        stored_bytes=Sum("size", filter=here, default=0),
    )
    sums = {pk: (files, size, stored, stored_size) for pk, files, size, stored, stored_size in summed}
    found = []
    for row in HostOutputs.objects.filter(job=job).select_related("host").order_by("pk"):
        files, size, stored, stored_size = sums.get(row.pk, (0, 0, 0, 0))
        found.append(
            HostState(
                host=row.host.name,
                stage=OutputStage(row.stage),
                files=files,
                bytes=size,
                stored_files=stored,
                stored_bytes=stored_size + row.moving_bytes,
                moving_path=row.moving_path,
                problem=row.problem,
                looked_at=row.looked_at,
                left_out=row.left_out,
                is_filled=row.filled_at is not None or row.settled_at is not None,
                fill_done=row.fill_done,
                fill_total=row.fill_total,
            )
        )
    return found
