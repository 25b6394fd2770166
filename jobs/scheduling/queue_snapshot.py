"""The scheduler's view of the rows: which jobs wait, which run, and until when. A few queries, however many jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import QuerySet

from agents.infra.sql import SelectStatement
from jobs.lifecycle import faulty_jobs, snapshot
from jobs.models import Job, Project
from jobs.projects import locations
from jobs.projects.claim_holders import ClaimHolder
from jobs.rules.lifecycle.states import JobState
from jobs.rules.scheduling import resource_requests
from jobs.rules.scheduling.order import WaitingJob
from jobs.rules.scheduling.policy import AFTER_TIMEOUT_S
from jobs.rules.scheduling.running_jobs import HostClaim, RunningJob
from jobs.rules.scheduling.wait_reasons import Wait, WaitReason
from jobs.rules.spec.image_aliases import as_kept
from jobs.scheduling import capacity
from jobs.scheduling.capacity import ClusterCapacity

# How long a job may take from its placement to its start; its timeout counts from its start.
START_S = 600.0
# A job that is being stopped ends this long after its grace; one that should have ended already, this long from now.
AFTER_STOP_S = 30.0

_WAITING = (
    "pk",
    "project",
    "owner",
    "location_name",
    "resource_request",
    "timeout_s",
    "priority",
    "spot",
    "attempt",
    "undrawn",
    "started_at",
    "reason",
    "earliest_start_at",
    "wait_limit_s",
    "quota_since",
    "queue_pin__rank",
    "queue_pin__whole",
    "queue_pin__by",
)


@dataclass(frozen=True, slots=True)
class WaitingQueue:
    """The jobs that wait, and what their rows say about it: the reason, and when they will start."""

    waiting: list[WaitingJob]
    known: dict[int, tuple[str, datetime | None]]
    with_wait_limit: set[int] = field(default_factory=set)
    """Jobs that limit how long they wait for capacity."""
    excluded: dict[int, Wait] = field(default_factory=dict)
    """Jobs of projects that their location does not serve any more: they are offered no place."""
    waiting_for_quota: dict[int, datetime] = field(default_factory=dict)
    """Jobs that wait for quota, and since when."""
    pinned_by: dict[int, str] = field(default_factory=dict)
    """Jobs whose place a person has set (reorder.py), and who."""

    @property
    def has_several_projects(self) -> bool:
        """With jobs of one project only, fair shares make no difference (rules/scheduling/order.py)."""
        return len({each.project for each in self.waiting}) > 1


@dataclass(frozen=True, slots=True)
class RunningSnapshot:
    running: list[RunningJob]
    held: Mapping[int, float]
    """By project, in GPUs."""


def waiting_jobs() -> QuerySet[Job]:
    """Jobs that wait for a place and are not set aside (faulty_jobs.py)."""
    wants = Job.every.filter(state=JobState.QUEUED, outcome="", cancel_requested_at=None)
    return wants.filter(rests_until=None).order_by("pk")


def is_waiting(job: Job) -> bool:
    """The same condition for a row that was read."""
    wants = job.state == JobState.QUEUED and not job.outcome and job.cancel_requested_at is None
    return wants and job.rests_until is None


QUEUE = SelectStatement(lambda: waiting_jobs().values_list(*_WAITING))


def read_queue(cluster: ClusterCapacity, now: datetime) -> WaitingQueue:
    found = WaitingQueue([], {})
    places: dict[str, str] = {}
    scopes: dict[tuple[str, int, frozenset[str]], str] = {}
    excluded: dict[int, tuple[str, int]] = {}
    without_request = []
    for row in QUEUE():
        pk, project, owner, named, text, timeout_s, priority, spot, attempt, undrawn, *row_of_waiting = row
        started_at, reason, earliest, wait_limit_s, quota_since, rank, whole, pinned_by = row_of_waiting
        if not text:
            without_request.append(pk)
            continue
        if named not in places:
            places[named] = cluster.location(named)
        if started_at is not None:
            timeout_s -= (now - started_at).total_seconds()
        found.known[pk] = (reason, earliest)
        if wait_limit_s is not None:
            found.with_wait_limit.add(pk)
        if quota_since is not None:
            found.waiting_for_quota[pk] = quota_since
        if not cluster.bindings.serves(places[named], project):
            excluded[pk] = places[named], project
            continue
        needed = resource_requests.decode_request(text).engines
        scope = scopes.get((named, project, needed))
        if scope is None:
            scope = scopes[named, project, needed] = cluster.scope(places[named], project, needed)
        job = WaitingJob(pk, project, owner, scope, text, timeout_s, priority, spot, attempt, undrawn=undrawn)
        if rank is not None:
            found.pinned_by[pk] = pinned_by
            job = job._replace(pin=rank) if whole else job._replace(own_pin=rank)
        found.waiting.append(job)
    if without_request and _fill_requests(without_request, now):
        return read_queue(cluster, now)
    found.excluded.update(_excluded_waits(excluded))
    return found


def _excluded_waits(excluded: Mapping[int, tuple[str, int]]) -> dict[int, Wait]:
    """Why these jobs wait. `excluded`: the location and the project of each."""
    if not excluded:
        return {}
    names = dict(Project.objects.values_list("pk", "name"))
    return {
        job: Wait(WaitReason.LOCATION, locations.waits_text(location, names[project]))
        for job, (location, project) in excluded.items()
    }


def _fill_requests(ids: list[int], now: datetime) -> int:
    """Fill in the request (`Job.asks`) of jobs that have none yet. A job that cannot be read is set aside."""
    read = 0
    for job in Job.every.filter(pk__in=ids[:1_000]).order_by("pk"):
        try:
            spec = as_kept(snapshot.spec_of(job), job.resolved)
            columns = capacity.columns_of(spec, job.labels, snapshot.types_of(job))
        except Exception as problem:
            faulty_jobs.set_aside(job, problem, "Job %s cannot be read, and is not offered a place.", now)
            continue
        read += Job.every.filter(pk=job.pk).update(**columns)
    return read


def read_running(held: Sequence[ClaimHolder], kinds: Mapping[str, str], now: datetime) -> RunningSnapshot:
    """`kinds`: the accelerator type of each GPU, by UUID."""
    jobs: dict[int, list[ClaimHolder]] = defaultdict(list)
    for run in held:
        jobs[run.job].append(run)
    running = [_running(runs, kinds, now.timestamp()) for runs in jobs.values()]
    return RunningSnapshot(running, held_by_project(held))


def held_by_project(held: Iterable[ClaimHolder]) -> Mapping[int, float]:
    """What each project holds, in GPUs."""
    found: dict[int, float] = defaultdict(float)
    for run in held:
        found[run.job__project] += len(run.gpu_uuids) or run.cpus / resource_requests.CPUS_PER_GPU
    return found


def _running(runs: Sequence[ClaimHolder], kinds: Mapping[str, str], now: float) -> RunningJob:
    of = runs[0]
    stopping = bool(of.job__outcome or of.job__preempted_by) or of.job__cancel_requested_at is not None
    began = min(run.created_at.timestamp() for run in runs)
    if stopping:
        stops = [run.stop_wanted_at.timestamp() + run.stop_grace_s for run in runs if run.stop_wanted_at]
        ends = max(stops, default=now)
    else:
        start = of.job__started_at.timestamp() if of.job__started_at else began + START_S
        ends = start + of.job__timeout_s + AFTER_TIMEOUT_S
    claims = tuple(_claim(run, kinds) for run in runs)
    ends = max(ends, now) + AFTER_STOP_S if stopping or ends <= now else ends
    return RunningJob(of.job, ends, claims, of.job__spot, began, stopping, of.job__project, of.job__owner)


def _claim(run: ClaimHolder, kinds: Mapping[str, str]) -> HostClaim:
    kind = kinds.get(run.gpu_uuids[0], "") if run.gpu_uuids else ""
    return HostClaim(run.machine, run.cpus, run.memory_mb, kind, len(run.gpu_uuids))


def changed_reasons(
    found: WaitingQueue, waits: Mapping[int, Wait], starts: Mapping[int, float]
) -> Iterator[int]:
    """The jobs whose row says something else than this pass."""
    for pk, wait in waits.items():
        reason, earliest = found.known[pk]
        start = starts.get(pk)
        if reason != wait.text or (earliest.timestamp() if earliest else None) != start:
            yield pk
