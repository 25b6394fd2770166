"""The map of all GPUs: what each one does now, and which job holds it, as far as the person may see that job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Count, Exists, FilteredRelation, Max, OuterRef, Q, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _

from agents.models import Gpu, GpuState, Host, HostStatus
from console.auth import access
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.hosts.gpu_last_day import LastDay, last_day
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.models import GpuClaim, Run
from jobs.projects import claim_holders
from jobs.rules.lifecycle.states import RunPhase

FREE = Badge("free", gettext_noop("Free"), "good", "dash")
HELD = Badge("held", gettext_noop("Held by a job"), "live", "play")
# A process that Trainyard did not start is on the GPU, or the host cannot tell.
STRANGERS = Badge("strangers", gettext_noop("Held by somebody else"), "bad", "stop")
PROVING = badges.GPU[GpuState.CLEANING]
CLOSED = Badge("closed", gettext_noop("On a host that takes no jobs"), "still", "slash")
LEGEND = (HELD, FREE, badges.GPU_CLEANING, PROVING, badges.GPU_FORGOTTEN, STRANGERS, CLOSED)
SIZE = 25  # hosts of a page
CHARTS_EVERY_S = 600
SOMEBODY = gettext_noop("a job of a project that is not yours")


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that holds GPUs of a host. `url` is empty if the person may not see the job."""

    job: str
    project: str
    url: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One GPU. `words` describe it fully: what it is, what it does, and for which job. `url`: the job's page."""

    index: int
    state: Badge
    words: str
    url: str

    @property
    def linked(self) -> bool:
        """Whether it links to the job that holds it."""
        return bool(self.url) and self.state in (HELD, badges.GPU_CLEANING)


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
    """One page of hosts with their GPUs. `total`, `tally` and `day` are of all hosts. `next`, `first`: addresses."""

    hosts: tuple[HostGpus, ...]
    total: int
    tally: tuple[tuple[Badge, int], ...]
    types: tuple[str, ...]
    type: str
    day: LastDay | None
    next: str
    first: str


def gpu_map(user: User, query: Mapping[str, str]) -> GpuMap:
    """Return a page of the map of all GPUs, or of one type. The number of queries does not depend on the GPUs."""
    now = timezone.now()
    visible = access.visible(user, Host.machines.order_by("name"))
    forgotten = claim_holders.gpus_of_strays()
    tallies = _tallies(visible, forgotten)
    kind = query.get("type", "")
    kind = kind if kind in tallies else ""
    counts = sum((tally for type_, tally in tallies.items() if kind in ("", type_)), Counter())
    page = list(_page(visible, kind, query.get("after", "")))
    total, more = counts.total(), len(page) > SIZE
    return GpuMap(
        hosts=tuple(_rows(user, page[:SIZE], kind, forgotten)),
        total=total,
        tally=tuple((state, counts[state]) for state in LEGEND if counts[state]),
        types=tuple(sorted(type_ for type_ in tallies if type_)),
        type=kind,
        day=last_day(visible.order_by().values_list("pk", flat=True), kind, total, now),
        next=_address(kind, page[SIZE - 1].name) if more else "",
        first=_address(kind, "") if query.get("after") else "",
    )


def stamp(user: User) -> list[object]:
    """Return what changes whenever a page of the map would change, without what changes at each contact of a host."""
    hosts = access.visible(user, Host.machines.all())
    cordoned = Count("pk", filter=Q(maintenance__cordoned=True))
    gpus = Gpu.objects.filter(present=True).order_by()
    open_runs = Run.objects.filter(released_at=None)
    return [
        hosts.aggregate(Count("pk"), Max("status_since"), cordoned=cordoned),
        sorted(gpus.values_list("state").annotate(Count("pk"), Max("pk"))),
        GpuClaim.objects.filter(released_at=None).aggregate(Count("pk"), Max("pk")),
        open_runs.aggregate(Count("pk"), ended=Count("pk", filter=Q(phase=RunPhase.ENDED))),
        sorted(claim_holders.gpus_of_strays()),
        # The charts of the last day.
        int(timezone.now().timestamp()) // CHARTS_EVERY_S,
    ]


def _page(visible: QuerySet[Host], kind: str, after: str) -> QuerySet[Host]:
    there = Gpu.objects.filter(
        present=True, host=OuterRef("pk"), **({"accelerator_type": kind} if kind else {})
    )
    rows = visible.filter(Exists(there), name__gt=after[:63])
    return rows.select_related("location", "maintenance").defer("checklist", "facts")[: SIZE + 1]


def _address(kind: str, after: str) -> str:
    asked = {name: value for name, value in (("type", kind), ("after", after)) if value}
    return f"{reverse('gpus')}?{urlencode(asked)}"


def _rows(user: User, hosts: Sequence[Host], kind: str, forgotten: Collection[str]) -> Iterable[HostGpus]:
    ids = [host.pk for host in hosts]
    gpus = Gpu.objects.filter(present=True, host__in=ids, **({"accelerator_type": kind} if kind else {}))
    by_host: defaultdict[int, list[Gpu]] = defaultdict(list)
    for gpu in gpus.only("host", "uuid", "index", "model", "state").order_by("host", "index"):
        by_host[gpu.host_id].append(gpu)
    claims = _claims(user, ids)
    return (_host(host, by_host[host.pk], claims, forgotten) for host in hosts)


def _tallies(visible: QuerySet[Host], forgotten: Collection[str]) -> dict[str, Counter[Badge]]:
    """Return how many GPUs of each type are in which state, for all hosts: the database counts them.

    Of the runs that hold GPUs only those that have ended are looked up, which are few. Of a join of all claims with
    their runs PostgreSQL expects too few rows, and would look up each run by itself.
    """
    counts: defaultdict[str, Counter[Badge]] = defaultdict(Counter)
    there = Gpu.objects.filter(present=True, host__in=visible.order_by()).order_by()
    known = there.exclude(uuid__in=forgotten) if forgotten else there
    held = FilteredRelation("claims", condition=Q(claims__released_at=None))
    columns = ("accelerator_type", "state", "host__status", "host__maintenance__cordoned")
    rows = known.annotate(claim=held, is_held=Q(claim__isnull=False)).values_list(*columns, "is_held")
    for kind, state, status, cordoned, is_held, count in rows.annotate(Count("pk")):
        phase = RunPhase.RUNNING if is_held else None
        counts[kind][_state(state, phase, status == HostStatus.UP and not cordoned)] += count
    ended = Run.objects.filter(released_at=None, phase=RunPhase.ENDED).order_by().values("pk")
    cleaning = known.filter(claims__released_at=None, claims__run__in=ended)
    for kind, state, count in cleaning.values_list("accelerator_type", "state").annotate(Count("pk")):
        counts[kind][_state(state, RunPhase.RUNNING, True)] -= count
        counts[kind][_state(state, RunPhase.ENDED, True)] += count
    if forgotten:
        lost = there.filter(uuid__in=forgotten).values_list("accelerator_type")
        for kind, count in lost.annotate(Count("pk")):
            counts[kind][badges.GPU_FORGOTTEN] += count
    return counts


@dataclass(frozen=True, slots=True)
class _SeenRun:
    """A run that the person may see, with what the page says of it."""

    job: str
    replica: str
    project: str
    url: str


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim on a GPU. `run` is None if the person may not see the job."""

    run: _SeenRun | None
    ended: bool


def _claims(user: User, hosts: Sequence[int]) -> Mapping[int, _Claim]:
    rows = GpuClaim.objects.filter(released_at=None, gpu__host__in=hosts).values_list(
        "gpu", "run", "run__phase"
    )
    # With a login for each project, the host of a run is the row of that login.
    here = Q(host__in=hosts) | Q(host__machine__in=hosts)
    held = access.visible(user, Run.objects.filter(here, released_at=None)).order_by()
    columns = ("pk", "job", "job__display_name", "replica__name", "job__project__name")
    seen = {
        run: _SeenRun(name, replica, project, reverse("job", args=[job]))
        for run, job, name, replica, project in held.values_list(*columns)
    }
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
    phase = None if claim is None else RunPhase.ENDED if claim.ended else RunPhase.RUNNING
    takes_jobs = host.status == HostStatus.UP and not maintenance_of(host).cordoned
    state = badges.GPU_FORGOTTEN if forgotten else _state(gpu.state, phase, takes_jobs)
    words = _("GPU {index} of {host}, {model}: {state}").format(
        index=gpu.index, host=host.name, model=gpu.model, state=state.word.lower()
    )
    if claim is None:
        return Cell(gpu.index, state, words, "")
    run = claim.run
    if run is None:
        return Cell(gpu.index, state, f"{words}, {gettext(SOMEBODY)}", "")
    return Cell(
        gpu.index,
        state,
        f"{words}, "
        + _("{job} ({replica}) of {project}").format(job=run.job, replica=run.replica, project=run.project),
        run.url,
    )


def _state(state: str, phase: str | None, takes_jobs: bool) -> Badge:
    """Return the state of a GPU. Who uses it comes first. Whether its host takes jobs matters only for a free GPU.

    `phase` is that of the run that holds it.
    """
    if state == GpuState.QUARANTINED:
        return STRANGERS
    if phase is not None:
        return badges.GPU_CLEANING if phase == RunPhase.ENDED else HELD
    if state == GpuState.CLEANING:
        return PROVING
    return FREE if takes_jobs else CLOSED


def _holders(claims: Iterable[_Claim]) -> Iterable[Holder]:
    counts = Counter(
        (claim.run.url, claim.run.job, claim.run.project) if claim.run else None for claim in claims
    )
    for job, count in counts.items():
        if job is None:
            yield Holder(gettext(SOMEBODY), "", "", count)
        else:
            url, name, project = job
            yield Holder(name, project, url, count)
