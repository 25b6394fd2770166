"""Accounting: a usage row for each run that has released what it held, and the sums of these rows by month.

The row is written in the transaction that releases the claim. A restart moves the claim at one moment, which ends one
row and begins the next, so nothing is counted twice and nothing is left out. What runs now is added when somebody
reads. Each row is folded into the sums once, a while later; readers add the rows that are not folded yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet

from agents.infra.sql import InsertStatement, Parameter, SelectStatement
from agents.models import Gpu
from jobs.models import MonthlyUse, Project, Run, Usage
from jobs.projects import claim_holders, live_use
from jobs.projects.claim_holders import ClaimHolder
from jobs.rules.scheduling.fairness import Share, decayed, used
from jobs.rules.scheduling.usage_months import GPUS_OF_A_CPU, begin, by_month, following, in_month

FOLD = 1_000
# How often a reader begins again because rows were folded while it read.
MAX_READS = 5
# How many usage rows one part of the report by job has; all rows of one job are in the same part.
ROWS_AT_ONCE = 500


@dataclass(frozen=True)
class Holding:
    """What one run held, and from when to when; until now if it still holds it."""

    run: str
    job: int
    project: int
    owner: int | None
    owner_name: str
    accelerator_type: str
    gpus: int
    cpus: float
    began_at: datetime
    ended_at: datetime

    @cached_property
    def seconds(self) -> float:
        return (self.ended_at - self.began_at).total_seconds()

    @property
    def key(self) -> tuple[int, str, int, str]:
        """What a line of the report by job is about."""
        return self.project, self.owner_name, self.job, self.accelerator_type

    def decayed_use(self, now: datetime) -> float:
        """How much of it counts for the share of its project now."""
        ago = ((now - when).total_seconds() for when in (self.began_at, self.ended_at))
        return used(self.gpus + self.cpus * GPUS_OF_A_CPU, *ago)


_OF_RUN = (
    "pk",
    "job",
    "job__project",
    "job__owner",
    "job__owner_name",
    "gpu_uuids",
    "cpus",
    "created_at",
)
OF_USAGE = (
    "run",
    "job",
    "project",
    "owner",
    "owner_name",
    "accelerator_type",
    "gpus",
    "cpus",
    "began_at",
    "ended_at",
)

_JOB_COLUMNS = (
    "project",
    "owner_name",
    "job",
    "accelerator_type",
    "gpus",
    "cpus",
    "began_at",
    "ended_at",
)

_unfolded = SelectStatement(lambda: Usage.objects.filter(folded=False).order_by().values_list(*OF_USAGE))
_folded_since = SelectStatement(
    lambda: Usage.objects.filter(run__among=Parameter("runs"), folded=True).order_by().values_list("pk")[:1]
)
_projects = SelectStatement(
    lambda: Project.objects.order_by().values_list("pk", "weight", "share_used", "share_at")
)
_insert = InsertStatement(Usage)
_kinds = SelectStatement(
    lambda: (
        Gpu.objects.filter(uuid__among=Parameter("uuids")).order_by().values_list("uuid", "accelerator_type")
    )
)
_holding = SelectStatement(
    lambda: (
        Run.objects.filter(pk__among=Parameter("runs"), released_at=None).order_by("pk").values_list(*_OF_RUN)
    )
)


def record(run_ids: Collection[str], now: datetime) -> None:
    """Write the usage rows of runs that release their claims now. Runs that released before are skipped."""
    _insert.many(
        [
            Usage(
                run_id=held.run,
                job_id=held.job,
                project_id=held.project,
                owner_id=held.owner,
                owner_name=held.owner_name,
                accelerator_type=held.accelerator_type,
                gpus=held.gpus,
                cpus=held.cpus,
                began_at=held.began_at,
                ended_at=held.ended_at,
            )
            for held in _of_runs(_holding(runs=run_ids), now)
        ]
    )


def live(now: datetime, projects: Iterable[int] | None = None) -> list[Holding]:
    """What runs hold at this moment."""
    if projects is None:
        return list(_of_runs(map(_row_of, claim_holders.read_holders()), now))
    return list(_of_runs(_live_runs(projects).order_by().values_list(*_OF_RUN), now))


def held_by(run_ids: Collection[str], now: datetime) -> list[Holding]:
    """What those of these runs hold that have not ended."""
    return list(_of_runs(_holding(runs=run_ids), now))


def _live_runs(projects: Iterable[int]) -> QuerySet[Run]:
    return Run.objects.filter(released_at=None, job__project__in=list(projects))


def unfolded(projects: Iterable[int] | None = None) -> list[Holding]:
    """The usage rows that are in no sum yet. They are few and have an index. With the projects asked for as well, all
    rows of these would be read."""
    wanted = None if projects is None else set(projects)
    every = (Holding(*row) for row in _unfolded())
    return [held for held in every if wanted is None or held.project in wanted]


def _fresh(now: datetime, projects: Iterable[int] | None = None) -> list[Holding]:
    """What is in no sum yet: live and unfolded holdings. Read in this order, a run that ends meanwhile is in both."""
    ids = None if projects is None else list(projects)
    return list({held.run: held for held in (*live(now, ids), *unfolded(ids))}.values())


def fold(now: datetime) -> int:
    """Add unfolded rows to the sums of their months and to the shares, each once. Returns how many there were."""
    with transaction.atomic():
        fresh = Usage.objects.select_for_update(no_key=True).filter(folded=False).order_by("pk")[:FOLD]
        rows = list(fresh.values_list("pk", *OF_USAGE))
        held = [Holding(*row) for _, *row in rows]
        _fold_months(held)
        _fold_shares(held, now)
        Usage.objects.filter(pk__in=[pk for pk, *_ in rows]).update(folded=True)
    return len(rows)


def _fold_months(rows: Iterable[Holding]) -> None:
    sums: dict[tuple[date, int, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    owners = {}
    for held in rows:
        owners[held.owner_name] = held.owner
        for month, seconds in by_month(held.began_at, held.ended_at):
            cell = sums[month, held.project, held.owner_name, held.accelerator_type]
            cell[0] += seconds * held.gpus
            cell[1] += seconds * held.cpus
    for (month, project, name, kind), (gpu_seconds, cpu_seconds) in sums.items():
        key = {"month": month, "project_id": project, "owner_name": name, "accelerator_type": kind}
        MonthlyUse.objects.get_or_create(**key, defaults={"owner_id": owners[name]})
        MonthlyUse.objects.filter(**key).update(
            gpu_seconds=F("gpu_seconds") + gpu_seconds, cpu_seconds=F("cpu_seconds") + cpu_seconds
        )


def _fold_shares(rows: Iterable[Holding], now: datetime) -> None:
    fresh: dict[int, float] = defaultdict(float)
    for held in rows:
        fresh[held.project] += held.decayed_use(now)
    for project in Project.objects.select_for_update(no_key=True).filter(pk__in=fresh).order_by("pk"):
        past = _past(project.share_used, project.share_at, now)
        Project.objects.filter(pk=project.pk).update(share_used=past + fresh[project.pk], share_at=now)


def _past(amount: float, at: datetime | None, now: datetime) -> float:
    return decayed(amount, (now - at).total_seconds()) if at is not None else 0.0


def shares(now: datetime, holding: Sequence[ClaimHolder] | None = None) -> dict[int, Share]:
    """What each project has used lately, including what it holds now, and its weight.

    `holding` is what is held now, if the caller has read it already; else the database adds it up.
    """
    found = {pk: [weight, _past(amount, at, now)] for pk, weight, amount, at in _projects()}
    if holding is None:
        for project, amount in live_use.decayed_use(now).items():
            found[project][1] += amount
        return {pk: Share(*figures) for pk, figures in found.items()}
    running = [_held(*_row_of(run), now=now) for run in holding]
    for held in {held.run: held for held in (*running, *unfolded())}.values():
        found[held.project][1] += held.decayed_use(now)
    return {pk: Share(*figures) for pk, figures in found.items()}


@dataclass(frozen=True, slots=True)
class UsageLine:
    """One line of a month's report."""

    project: int
    owner: int | None
    owner_name: str
    accelerator_type: str
    gpu_seconds: float
    cpu_seconds: float


def report(month: date, projects: Iterable[int], now: datetime) -> list[UsageLine]:
    """The use in a month up to now by project, person and accelerator type, including what runs now."""
    ids = list(projects)
    sums: dict[tuple[int, int | None, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    keys = ("project", "owner", "owner_name", "accelerator_type")
    folded = MonthlyUse.objects.filter(project__in=ids, month=month)
    for _ in range(MAX_READS):
        fresh, rows = _fresh(now, ids), list(folded.values_list(*keys, "gpu_seconds", "cpu_seconds"))
        runs = [held.run for held in fresh]
        if not runs or not _folded_since(runs=runs):
            # Otherwise some rows were folded meanwhile and are in both: read again.
            break
    for *key, gpu_seconds, cpu_seconds in rows:
        cell = sums[tuple(key)]
        cell[0] += gpu_seconds
        cell[1] += cpu_seconds
    for held in fresh:
        seconds = in_month(month, held.began_at, held.ended_at)
        if seconds:
            cell = sums[held.project, held.owner, held.owner_name, held.accelerator_type]
            cell[0] += seconds * held.gpus
            cell[1] += seconds * held.cpus
    return [
        UsageLine(*key, *cell) for key, cell in sorted(sums.items(), key=lambda one: (one[0][0], *one[0][2:]))
    ]


@dataclass(frozen=True, slots=True)
class JobLine:
    """What one job used in a month."""

    project: int
    owner_name: str
    job: int
    accelerator_type: str
    runs: int
    gpu_seconds: float
    cpu_seconds: float


def report_by_job(month: date, projects: Iterable[int], now: datetime) -> Iterator[list[JobLine]]:
    """The use in a month by job, the newest job first, in parts of some jobs, from the usage rows. Each part is read
    when it is asked for: a month of a large deployment has tens of thousands of jobs.
    """
    ids = list(projects)
    # Which runs are live is read first: one that ends before its part is read has a row there.
    living = list(_live_runs(ids).order_by("job").values_list("job", "pk"))
    first, last = begin(month), begin(following(month))
    rows = Usage.objects.filter(project__in=ids, ended_at__gt=first, began_at__lt=last).order_by("-job")
    of_rows: int | None = None
    while True:
        if of_rows is None:
            of_rows = next(iter(rows.values_list("job", flat=True)[ROWS_AT_ONCE : ROWS_AT_ONCE + 1]), 0)
        border = max(of_rows, living[-ROWS_AT_ONCE - 1][0] if len(living) > ROWS_AT_ONCE else 0)
        of_part = []
        while living and living[-1][0] >= border:
            of_part.append(living.pop()[1])
        runs = {
            held.run: (*held.key, held.gpus, held.cpus, held.began_at, held.ended_at)
            for held in held_by(of_part, now)
        }
        # Read after what is held: a run that ends meanwhile is in both, and its row replaces what it held.
        part = rows.filter(job__gte=border).values_list("run", *_JOB_COLUMNS)
        runs |= {run: columns for run, *columns in part}
        yield _job_lines(runs.values(), first, last)
        if not border:
            return
        rows = rows.filter(job__lt=border)
        # The rows of a part that live runs have cut short are the next one's.
        of_rows = None if border == of_rows else of_rows


def _job_lines(runs: Iterable[Sequence[Any]], first: datetime, last: datetime) -> list[JobLine]:
    """The lines of some jobs, the newest first, of runs with the columns of _JOB_COLUMNS."""
    sums: dict[tuple[int, str, int, str], list[float]] = {}
    for project, owner, job, kind, gpus, cpus, began_at, ended_at in runs:
        seconds = (min(ended_at, last) - max(began_at, first)).total_seconds()
        if seconds > 0:
            cell = sums.setdefault((project, owner, job, kind), [0, 0.0, 0.0])
            cell[0] += 1
            cell[1] += seconds * gpus
            cell[2] += seconds * cpus
    return [
        JobLine(*key, int(cell[0]), *cell[1:])
        for key, cell in sorted(sums.items(), key=lambda one: -one[0][2])
    ]


def gpu_seconds_this_month(projects: Iterable[int], now: datetime) -> dict[tuple[int, int | None], float]:
    """The GPU-seconds of this month by project and owner, up to now."""
    return live_use.gpu_seconds_this_month(list(projects), now)


def gpu_seconds_of_jobs(
    jobs: QuerySet[Any, Any] | Collection[int], now: datetime
) -> tuple[dict[int, float], bool]:
    """The GPU-seconds of each of these jobs, up to now, and whether one of them still holds GPUs."""
    # Live holdings are read first: a run that ends meanwhile is in both, and its row replaces them.
    runs = _live_gpu_seconds(jobs, now)
    growing = any(seconds for _job, seconds in runs.values())
    ended = (
        Usage.objects.filter(job__in=jobs)
        .order_by()
        .values_list("run", "job", "gpus", "began_at", "ended_at")
    )
    runs |= _gpu_seconds(ended)
    found: dict[int, float] = defaultdict(float)
    for job, seconds in runs.values():
        found[job] += max(seconds, 0.0)
    return dict(found), growing


def _gpu_seconds(rows: Iterable[tuple[Any, ...]]) -> dict[str, tuple[int, float]]:
    """The job and the GPU-seconds of each run, from usage rows."""
    return {run: (job, gpus * (end - began).total_seconds()) for run, job, gpus, began, end in rows}


def _live_gpu_seconds(
    jobs: QuerySet[Any, Any] | Collection[int], now: datetime
) -> dict[str, tuple[int, float]]:
    """The job and the GPU-seconds of each run of these jobs that still holds its GPUs, up to now."""
    held = Run.objects.filter(released_at=None, job__in=jobs).order_by()
    return {
        run: (job, len(gpus) * (now - began).total_seconds())
        for run, job, gpus, began in held.values_list("pk", "job", "gpu_uuids", "created_at")
    }


def _row_of(run: ClaimHolder) -> tuple[Any, ...]:
    """The columns of _OF_RUN, from a claim holder."""
    whose = (run.job__project, run.job__owner, run.job__owner_name)
    return (run.pk, run.job, *whose, run.gpu_uuids, run.cpus, run.created_at)


def _held(
    run: str,
    job: int,
    project: int,
    owner: int | None,
    name: str,
    uuids: Sequence[str],
    cpus: float,
    began: datetime,
    *,
    now: datetime,
    kind: str = "",
) -> Holding:
    """A holding until now. `kind` is empty for the shares, which do not need the accelerator type."""
    return Holding(run, job, project, owner, name, kind, len(uuids), cpus, began, max(began, now))


def _of_runs(rows: Iterable[tuple[Any, ...]], now: datetime) -> Iterator[Holding]:
    read = list(rows)
    firsts = {row[5][0] for row in read if row[5]}
    # All GPUs of a run are of one type: a replica asks for one.
    kinds: dict[str, str] = dict(_kinds(uuids=firsts)) if firsts else {}
    for row in read:
        uuids = row[5]
        yield _held(*row, now=now, kind=kinds.get(uuids[0], "") if uuids else "")
