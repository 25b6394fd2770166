"""The rows of the GPU map: each host of a page with its GPUs, how busy each one is, and who holds it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _

from agents.models import LOAD_IS_FRESH, Gpu, GpuState, Host, HostLoad, HostStatus
from console.auth import access
from console.presenters import badges, sizes
from console.presenters.badges import Badge
from console.presenters.hosts.host_gpus import on_machines
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.models import GpuClaim, Run
from jobs.rules.lifecycle.states import RunPhase

FREE = Badge("free", gettext_noop("Free"), "good", "dash")
HELD = Badge("held", gettext_noop("Held by a job"), "live", "play")
# A replica that leaves another host has its place here already.
RESERVED = Badge("reserved", gettext_noop("Reserved for a replica that moves here"), "wait", "hourglass")
# A process that Trainyard did not start is on the GPU, or the host cannot tell.
STRANGERS = Badge("strangers", gettext_noop("Held by somebody else"), "bad", "stop")
PROVING = badges.GPU[GpuState.CLEANING]
CLOSED = Badge("closed", gettext_noop("On a host that takes no jobs"), "still", "slash")
DRAINED = Badge("drained", gettext_noop("Being drained"), "warn", "stop")
SOMEBODY = gettext_noop("a job of a project that is not yours")
_GPU_COLUMNS = ("pk", "host_id", "uuid", "index", "model", "memory_mb", "state")
# Five colours: up to 5 %, 25 %, 50 %, 75 %, and more.
LEVELS = (5, 25, 50, 75)


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that holds GPUs of a host. `url` is empty if the person may not see the job."""

    job: str
    project: str
    owner: str
    url: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One GPU. `words` describe it fully: what it is, what it does, how busy it is, and for which job.

    `load` and `memory` are in percent, None if the host has not reported them lately. `url`: the job's page.
    """

    index: int
    state: Badge
    words: str
    url: str
    model: str = ""
    load: int | None = None
    memory: int | None = None
    memory_words: str = ""
    power: int | None = None
    temperature: int | None = None
    job: str = ""
    owner: str = ""

    @property
    def linked(self) -> bool:
        """Whether it links to the job that holds it."""
        return bool(self.url) and self.state in (HELD, RESERVED, badges.GPU_CLEANING)

    @property
    def load_text(self) -> str:
        return "–" if self.load is None else f"{self.load} %"

    @property
    def memory_text(self) -> str:
        return self.memory_words or "–"

    @property
    def power_text(self) -> str:
        return "–" if self.power is None else f"{self.power} W"

    @property
    def heat_text(self) -> str:
        return "–" if self.temperature is None else f"{self.temperature} °C"

    @property
    def level(self) -> int:
        """The colour of its load, from 0 to 4."""
        return sum(self.load > limit for limit in LEVELS) if self.load is not None else 0

    @property
    def looks(self) -> str:
        """The classes of its colours: of its load, and of the bar that shows its memory in tenths."""
        load = "load-none" if self.load is None else f"load-{self.level}"
        return load if self.memory is None else f"{load} memory-{min(10, round(self.memory / 10))}"


@dataclass(frozen=True, slots=True)
class HostGpus:
    """`load`: how busy the host itself is, in words, as it last reported it at `load_at`."""

    id: int
    name: str
    url: str
    badges: tuple[Badge, ...]
    note: str
    location: str
    models: str
    load: str
    load_at: datetime | None
    cells: tuple[Cell, ...]
    holders: tuple[Holder, ...]


def rows(
    user: User, hosts: Sequence[Host], kind: str, forgotten: Collection[str], now: datetime
) -> Iterable[HostGpus]:
    """Return the rows of these hosts. Makes four queries."""
    ids = [host.pk for host in hosts]
    gpus = Gpu.objects.filter(present=True, host__in=ids, **({"accelerator_type": kind} if kind else {}))
    by_host: defaultdict[int, list[_Gpu]] = defaultdict(list)
    for row in gpus.order_by("host", "index").values_list(*_GPU_COLUMNS):
        by_host[row[1]].append(_Gpu(*row))
    claims, texts = _claims(user, ids), _Texts.of_page()
    loads = {load.host_id: load for load in HostLoad.objects.filter(host__in=ids, at__gt=now - LOAD_IS_FRESH)}
    return (_host(host, by_host[host.pk], claims, forgotten, loads.get(host.pk), texts) for host in hosts)


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts of all cells, in the language of the page: each is looked up once for some hundred GPUs."""

    gpu: str
    job: str
    somebody: str
    load: str
    memory: str
    used: str

    @classmethod
    def of_page(cls) -> _Texts:
        return cls(
            gpu=_("GPU {index} of {host}, {model}: {state}"),
            job=_("{job} ({replica}) of {project}"),
            somebody=gettext(SOMEBODY),
            load=_("load {percent} %"),
            memory=_("memory {used}"),
            used=_("{used} of {all}"),
        )


@dataclass(frozen=True, slots=True)
class _Gpu:
    """What is shown of a GPU. A page has some hundred."""

    pk: int
    host_id: int
    uuid: str
    index: int
    model: str
    memory_mb: int
    state: str


@dataclass(frozen=True, slots=True)
class _SeenRun:
    """A run that the person may see, with what the page says of it."""

    job: str
    replica: str
    project: str
    owner: str
    url: str


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim on a GPU. `run` is None if the person may not see the job."""

    run: _SeenRun | None
    ended: bool
    reserved: bool


def _claims(user: User, hosts: Sequence[int]) -> Mapping[int, _Claim]:
    rows = GpuClaim.objects.filter(released_at=None, gpu__host__in=hosts).values_list(
        "gpu", "run", "run__phase", "run__held"
    )
    # With a login for each project, the host of a run is the row of that login.
    runs = access.visible(user, Run.objects.filter(on_machines(hosts), released_at=None)).order_by()
    columns = ("pk", "job", "job__display_name", "replica__name", "job__project__name", "job__owner_name")
    # Of a run without GPUs nothing is shown.
    holding = {run for _gpu, run, _phase, _held in rows}
    seen = {
        run: _SeenRun(name, replica, project, owner, reverse("job", args=[job]))
        for run, job, name, replica, project, owner in runs.values_list(*columns)
        if run in holding
    }
    return {gpu: _Claim(seen.get(run), phase == RunPhase.ENDED, held) for gpu, run, phase, held in rows}


def _host(
    host: Host,
    gpus: Sequence[_Gpu],
    claims: Mapping[int, _Claim],
    forgotten: Collection[str],
    load: HostLoad | None,
    texts: _Texts,
) -> HostGpus:
    models = Counter(gpu.model for gpu in gpus)
    takes_jobs = host.status == HostStatus.UP and not maintenance_of(host).cordoned
    loads = load.gpus if load else {}
    return HostGpus(
        id=host.pk,
        name=host.name,
        url=reverse("host", args=[host.pk]),
        badges=tuple(badges_of(host)),
        note=maintenance_of(host).cordon_message,
        location=host.location.name,
        models=", ".join(f"{count} × {model}" for model, count in models.items()),
        load=_words_of(host, load) if load else "",
        load_at=load.at if load else None,
        cells=tuple(
            _cell(
                host.name,
                gpu,
                claims.get(gpu.pk),
                gpu.uuid in forgotten,
                takes_jobs,
                loads.get(gpu.uuid),
                texts,
            )
            for gpu in gpus
        ),
        holders=tuple(_holders((claims[gpu.pk] for gpu in gpus if gpu.pk in claims), texts)),
    )


def badges_of(host: Host) -> Iterable[Badge]:
    """Nothing for a host that is well and takes jobs."""
    maintenance = maintenance_of(host)
    if host.status != HostStatus.UP:
        yield badges.HOST[host.status]
    if maintenance.cordoned:
        yield DRAINED if maintenance.drain_at else badges.CORDONED


def _words_of(host: Host, load: HostLoad) -> str:
    parts = []
    if load.cpu is not None:
        parts.append(_("{used} of {all} CPUs").format(used=sizes.decimal(load.cpu), all=host.cpus))
    if load.memory_mb is not None:
        used, whole = sizes.mebibytes(load.memory_mb), sizes.mebibytes(host.memory_mb)
        parts.append(_("{used} of {all} memory").format(used=used, all=whole))
    if load.net_rx is not None and load.net_tx is not None:
        received, sent = sizes.rate(load.net_rx), sizes.rate(load.net_tx)
        parts.append(_("network {received} in, {sent} out").format(received=received, sent=sent))
    if load.io_read is not None and load.io_write is not None:
        read, written = sizes.rate(load.io_read), sizes.rate(load.io_write)
        parts.append(_("disk {read} read, {written} written").format(read=read, written=written))
    return " · ".join(parts)


def _cell(
    host: str,
    gpu: _Gpu,
    claim: _Claim | None,
    forgotten: bool,
    takes_jobs: bool,
    load: Sequence[int | None] | None,
    texts: _Texts,
) -> Cell:
    phase = None if claim is None else RunPhase.ENDED if claim.ended else RunPhase.RUNNING
    state = badges.GPU_FORGOTTEN if forgotten else state_of(gpu.state, phase, takes_jobs)
    if state is HELD and claim is not None and claim.reserved:
        state = RESERVED
    words = texts.gpu.format(index=gpu.index, host=host, model=gpu.model, state=state.word.lower())
    run = claim.run if claim else None
    of = texts.somebody if claim else ""
    if run is not None:
        of = texts.job.format(job=run.job, replica=run.replica, project=run.project)
    percent, used, power, temperature = load or (None, None, None, None)
    memory = _memory_words(used, gpu.memory_mb, texts)
    said = _load_words(percent, memory, power, temperature, texts)
    return Cell(
        index=gpu.index,
        state=state,
        words=", ".join(part for part in (words, of, said) if part),
        url=run.url if run else "",
        model=gpu.model,
        load=percent,
        memory=round(100 * used / gpu.memory_mb) if used is not None and gpu.memory_mb else None,
        memory_words=memory,
        power=power,
        temperature=temperature,
        job=run.job if run else of,
        owner=run.owner if run else "",
    )


def _memory_words(used: int | None, whole: int, texts: _Texts) -> str:
    if used is None:
        return ""
    return texts.used.format(used=sizes.mebibytes(used), all=sizes.mebibytes(whole))


def _load_words(
    load: int | None, memory: str, power: int | None, temperature: int | None, texts: _Texts
) -> str:
    """The load of a GPU for people who do not see the colours."""
    parts = []
    if load is not None:
        parts.append(texts.load.format(percent=load))
    if memory:
        parts.append(texts.memory.format(used=memory))
    if power is not None:
        parts.append(f"{power} W")
    if temperature is not None:
        parts.append(f"{temperature} °C")
    return ", ".join(parts)


def state_of(state: str, phase: str | None, takes_jobs: bool) -> Badge:
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


def _holders(claims: Iterable[_Claim], texts: _Texts) -> Iterable[Holder]:
    counts = Counter(
        (claim.run.url, claim.run.job, claim.run.project, claim.run.owner) if claim.run else None
        for claim in claims
    )
    for job, count in counts.items():
        if job is None:
            yield Holder(texts.somebody, "", "", "", count)
        else:
            url, name, project, owner = job
            yield Holder(name, project, owner, url, count)
