"""The map of all GPUs: what each one does now, and which job holds it, as far as the person may see that job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from agents.models import Gpu, GpuState, Host, HostStatus
from console.auth import access
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.hosts.gpu_last_day import LastDay, last_day
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.models import GpuClaim, Run
from jobs.projects import claim_holders
from jobs.rules.lifecycle.states import RunPhase

FREE = Badge("free", "Free", "good", "dash")
HELD = Badge("held", "Held by a job", "live", "play")
# A process that Trainyard did not start is on the GPU, or the host cannot tell.
STRANGERS = Badge("strangers", "Held by somebody else", "bad", "stop")
PROVING = badges.GPU[GpuState.CLEANING]
CLOSED = Badge("closed", "On a host that takes no jobs", "still", "slash")
LEGEND = (HELD, FREE, badges.GPU_CLEANING, PROVING, badges.GPU_FORGOTTEN, STRANGERS, CLOSED)
SOMEBODY = "a job of a project that is not yours"


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that holds GPUs of a host. `url` is empty if the person may not see the job."""

    job: str
    project: str
    url: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One GPU. `words` describe it fully: what it is, what it does, and for which job."""

    index: int
    state: Badge
    words: str
    url: str


@dataclass(frozen=True, slots=True)
class HostGpus:
    name: str
    url: str
    badge: Badge
    location: str
    models: str
    cells: tuple[Cell, ...]
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class GpuMap:
    hosts: tuple[HostGpus, ...]
    total: int
    tally: tuple[tuple[Badge, int], ...]
    types: tuple[str, ...]
    type: str
    at: datetime
    day: LastDay | None


def gpu_map(user: User, kind: str) -> GpuMap:
    """Return the map of all GPUs, or of one type. Makes nine queries for any number of GPUs."""
    now = timezone.now()
    hosts = access.visible(
        user, Host.objects.select_related("location", "maintenance").defer("checklist", "facts")
    )
    present = list(
        Gpu.objects.filter(present=True, host__in=hosts).defer("holders").order_by("host", "index")
    )
    types = sorted({gpu.accelerator_type for gpu in present if gpu.accelerator_type})
    kind = kind if kind in types else ""
    by_host: defaultdict[int, list[Gpu]] = defaultdict(list)
    for gpu in present:
        if not kind or gpu.accelerator_type == kind:
            by_host[gpu.host_id].append(gpu)
    claims, forgotten = _claims(user), claim_holders.gpus_of_strays()
    rows = tuple(_host(host, by_host[host.pk], claims, forgotten) for host in hosts if by_host[host.pk])
    shown = [gpu for gpus in by_host.values() for gpu in gpus]
    counts = Counter(cell.state for row in rows for cell in row.cells)
    return GpuMap(
        hosts=rows,
        total=len(shown),
        tally=tuple((state, counts[state]) for state in LEGEND if counts[state]),
        types=tuple(types),
        type=kind,
        at=now,
        day=last_day({gpu.uuid: gpu.pk for gpu in shown}, kind, now),
    )


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim on a GPU. `run` is None if the person may not see the job."""

    run: Run | None
    ended: bool


def _claims(user: User) -> Mapping[int, _Claim]:
    rows = GpuClaim.objects.filter(released_at=None).values_list("gpu", "run", "run__phase")
    held = Run.objects.filter(released_at=None).select_related("job__project", "replica")
    light = held.only("job__display_name", "job__project__name", "replica__name")
    seen = {run.pk: run for run in access.visible(user, light)}
    return {gpu: _Claim(seen.get(run), phase == RunPhase.ENDED) for gpu, run, phase in rows}


def _host(
    host: Host, gpus: Sequence[Gpu], claims: Mapping[int, _Claim], forgotten: Collection[str]
) -> HostGpus:
    models = Counter(gpu.model for gpu in gpus)
    cordoned = maintenance_of(host).cordoned and host.status == HostStatus.UP
    return HostGpus(
        name=host.name,
        url=reverse("host", args=[host.pk]),
        badge=badges.CORDONED if cordoned else badges.HOST[host.status],
        location=host.location.name,
        models=", ".join(f"{count} × {model}" for model, count in models.items()),
        cells=tuple(_cell(host, gpu, claims.get(gpu.pk), gpu.uuid in forgotten) for gpu in gpus),
        holders=tuple(_holders(claims[gpu.pk] for gpu in gpus if gpu.pk in claims)),
    )


def _cell(host: Host, gpu: Gpu, claim: _Claim | None, forgotten: bool) -> Cell:
    state = badges.GPU_FORGOTTEN if forgotten else _state(host, gpu, claim)
    words = f"GPU {gpu.index} of {host.name}, {gpu.model}: {state.word.lower()}"
    if claim is None:
        return Cell(gpu.index, state, words, reverse("host", args=[host.pk]))
    run = claim.run
    if run is None:
        return Cell(gpu.index, state, f"{words}, {SOMEBODY}", "")
    whose = f"{run.job.display_name} ({run.replica.name}) of {run.job.project.name}"
    return Cell(gpu.index, state, f"{words}, {whose}", reverse("job", args=[run.job_id]))


def _state(host: Host, gpu: Gpu, claim: _Claim | None) -> Badge:
    """Return the state of a GPU. Who uses it comes first. Whether its host takes jobs matters only for a free GPU."""
    if gpu.state == GpuState.QUARANTINED:
        return STRANGERS
    if claim is not None:
        return badges.GPU_CLEANING if claim.ended else HELD
    if gpu.state == GpuState.CLEANING:
        return PROVING
    return FREE if host.status == HostStatus.UP and not maintenance_of(host).cordoned else CLOSED


def _holders(claims: Iterable[_Claim]) -> Iterable[Holder]:
    counts = Counter(claim.run.job if claim.run else None for claim in claims)
    for job, count in counts.items():
        if job is None:
            yield Holder(SOMEBODY, "", "", count)
        else:
            yield Holder(job.display_name, job.project.name, reverse("job", args=[job.pk]), count)
