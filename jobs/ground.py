"""The scheduler's view of the rows: who waits, what runs, and until when. Few queries, however many jobs."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import QuerySet

from agents.statements import Read
from jobs import floor, snapshot
from jobs.floor import Floor
from jobs.models import Job, Run
from jobs.rules import asks
from jobs.rules.order import Waiting
from jobs.rules.running import Claim, Running
from jobs.rules.serve import AFTER_TIMEOUT_S
from jobs.rules.states import JobState

log = logging.getLogger(__name__)

# How long a job may take from its place to its start; its timeout counts from there.
START_S = 600.0
# What is being stopped is over so long after its grace, and what should be over already so long from now.
AFTER_STOP_S = 30.0

_WAITING = (
    "pk",
    "project",
    "owner",
    "location_name",
    "asks",
    "timeout_s",
    "priority",
    "spot",
    "attempt",
    "started_at",
    "reason",
    "earliest_start_at",
    "wait_limit_s",
    "quota_since",
)
_RUNNING = (
    "job",
    "job__project",
    "job__owner",
    "job__spot",
    "job__timeout_s",
    "job__started_at",
    "job__outcome",
    "job__cancel_requested_at",
    "job__preempted_by",
    "host",
    "cpus",
    "memory_mb",
    "gpu_uuids",
    "created_at",
    "stop_wanted_at",
    "stop_grace_s",
)


@dataclass(frozen=True, slots=True)
class Queue:
    """Who waits, and what was told to them."""

    waiting: list[Waiting]
    told: dict[int, tuple[str, datetime | None]]
    limited: set[int] = field(default_factory=set)
    """Those that wait for capacity only so long."""
    paused: dict[int, datetime] = field(default_factory=dict)
    """Of these, those that wait for quota, since when."""

    @property
    def several(self) -> bool:
        """Are they of several projects? Of one, the shares are of no account (rules/order.py)."""
        return len({each.project for each in self.waiting}) > 1


@dataclass(frozen=True, slots=True)
class Occupied:
    running: list[Running]
    held: Mapping[int, float]
    """By project, in GPUs."""


def waiting() -> QuerySet[Job]:
    """Jobs that want a place."""
    return Job.every.filter(state=JobState.QUEUED, outcome="", cancel_requested_at=None).order_by("pk")


def wants_a_place(job: Job) -> bool:
    """The same of a row that was read."""
    return job.state == JobState.QUEUED and not job.outcome and job.cancel_requested_at is None


_queue = Read(lambda: waiting().values_list(*_WAITING))
_holding = Read(lambda: Run.objects.filter(released_at=None).order_by().values_list(*_RUNNING))


def queue(ground: Floor, now: datetime) -> Queue:
    found = Queue([], {})
    where: dict[str, str] = {}
    unread = []
    for row in _queue():
        pk, project, owner, named, text, timeout_s, priority, spot, attempt, *row_of_waiting = row
        started_at, reason, earliest, wait_limit_s, quota_since = row_of_waiting
        if not text:
            unread.append(pk)
            continue
        if named not in where:
            where[named] = ground.location(named)
        if started_at is not None:
            timeout_s -= (now - started_at).total_seconds()
        found.told[pk] = (reason, earliest)
        if wait_limit_s is not None:
            found.limited.add(pk)
        if quota_since is not None:
            found.paused[pk] = quota_since
        found.waiting.append(
            Waiting(pk, project, owner, where[named], text, timeout_s, priority, spot, attempt)
        )
    if unread and _read(unread):
        return queue(ground, now)
    return found


def _read(ids: list[int]) -> int:
    """Jobs of before there was a short text of what they ask for. One that cannot be read is in nobody's way."""
    read = 0
    for job in Job.every.filter(pk__in=ids[:1_000]):
        try:
            columns = floor.columns_of(snapshot.spec_of(job), job.labels, snapshot.types_of(job))
        except Exception:
            log.exception("Job %s cannot be read, and is not offered a place.", job.pk)
            continue
        read += Job.every.filter(pk=job.pk).update(**columns)
    return read


def occupied(kinds: Mapping[str, str], now: datetime) -> Occupied:
    """`kinds`: the accelerator type of each GPU, by UUID."""
    jobs: dict[int, list[tuple[object, ...]]] = defaultdict(list)
    held: dict[int, float] = defaultdict(float)
    for row in _holding():
        jobs[row[0]].append(row)
        held[row[1]] += len(row[12]) or row[10] / asks.CPUS_PER_GPU
    return Occupied([_running(rows, kinds, now.timestamp()) for rows in jobs.values()], held)


def _running(rows: list[tuple[object, ...]], kinds: Mapping[str, str], now: float) -> Running:
    job, project, owner, spot, timeout_s, started_at, outcome, cancelled_at, preempted, *_ = rows[0]
    stopping = bool(outcome or preempted) or cancelled_at is not None
    runs = [_Held(*row[9:]) for row in rows]  # type: ignore[arg-type]
    began = min(run.created_at.timestamp() for run in runs)
    if stopping:
        stops = [run.stop_wanted_at.timestamp() + run.stop_grace_s for run in runs if run.stop_wanted_at]
        ends = max(stops, default=now)
    else:
        start = started_at.timestamp() if isinstance(started_at, datetime) else began + START_S
        ends = start + float(timeout_s) + AFTER_TIMEOUT_S  # type: ignore[arg-type]
    claims = tuple(run.claim(kinds) for run in runs)
    ends = max(ends, now) + AFTER_STOP_S if stopping or ends <= now else ends
    return Running(job, ends, claims, bool(spot), began, stopping, project, owner)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Held:
    host: int
    cpus: float
    memory_mb: int
    gpu_uuids: list[str]
    created_at: datetime
    stop_wanted_at: datetime | None
    stop_grace_s: float

    def claim(self, kinds: Mapping[str, str]) -> Claim:
        kind = kinds.get(self.gpu_uuids[0], "") if self.gpu_uuids else ""
        return Claim(self.host, self.cpus, self.memory_mb, kind, len(self.gpu_uuids))


def told_again(found: Queue, reasons: Mapping[int, str], starts: Mapping[int, float]) -> Iterator[int]:
    """The jobs to which something else is to be told than before."""
    for pk, why in reasons.items():
        reason, earliest = found.told[pk]
        start = starts.get(pk)
        if reason != why or (earliest.timestamp() if earliest else None) != start:
            yield pk
