"""The floor: which hosts there are for a location, what is free on them, and what could never be placed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db.models.fields.json import KT

from agents.infra.sql import Parameter, PartialModel, Row, SelectStatement
from agents.models import Gpu, GpuState, Host, HostStatus, Location
from jobs.lifecycle import host_maintenance
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.models import GpuClaim
from jobs.models.first_rows import DEFAULT
from jobs.projects import claim_holders
from jobs.projects.claim_holders import ClaimHolder
from jobs.rules.list_text import more_text
from jobs.rules.scheduling import resource_requests, topology
from jobs.rules.scheduling.order import priority_of
from jobs.rules.scheduling.placement import GpuView, HostView, ReplicaRequest, needs_text, never_fits
from jobs.rules.scheduling.views import Topology
from jobs.rules.scheduling.wait_reasons import Wait, WaitReason
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.machine_types import NO_TYPES, Needs, Types, needs

MAX_CLOSED = 3
MAX_KINDS = 6
NO_HOST = "No host is in service. Add one under Hosts."

_HOST = PartialModel(
    Host,
    only=(
        "id",
        "name",
        "location",
        "address",
        "status",
        "cpus",
        "memory_mb",
    ),
)
_LOCATION = PartialModel(Location)
_hosts = SelectStatement(
    lambda: Host.objects.order_by("name").values_list(*_HOST.names, *host_maintenance.COLUMNS)
)
_known = SelectStatement(
    lambda: (
        Host.objects.filter(location__name=Parameter("location"), cpus__gt=0)
        .order_by("name")
        .values_list(*_HOST.names)
    )
)
_locations = SelectStatement(lambda: Location.objects.order_by("name").values_list(*_LOCATION.names))
_gpus_of = SelectStatement(
    lambda: (
        Gpu.objects.filter(host__among=Parameter("hosts"), present=True)
        .order_by("host", "index")
        .values_list("host", "uuid", "accelerator_type", "index")
    )
)
_unfit = SelectStatement(
    lambda: Gpu.objects.exclude(state=GpuState.OK).order_by().values_list("host", "uuid")
)
# By the rows that the constraint is on: what they hold is held, whatever a run says.
_claims = SelectStatement(
    lambda: GpuClaim.objects.filter(released_at=None).order_by().values_list("gpu__host", "gpu__uuid")
)


# What lives on although a restored backup has forgotten it. Only what is under our seal: others could close a host so.
_strays = SelectStatement(
    lambda: (
        claim_holders.living_strays().order_by().values_list("host", "cpus", "memory_mb", "port", "gpu_uuids")
    )
)


@dataclass(frozen=True, slots=True)
class LocationCapacity:
    """The hosts on which replicas may be placed now, with what is taken of each."""

    hosts: Mapping[int, Host]
    views: tuple[HostView, ...]
    locations: frozenset[str]
    in_service: bool
    # Why hosts of a location take nothing although they are up, in words.
    closed: Mapping[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[str, str]:
        """The accelerator type of each GPU, by UUID."""
        return {gpu.uuid: gpu.accelerator_type for view in self.views for gpu in view.gpus}

    def location(self, named: str) -> str:
        return resolved(named, self.locations)

    def why(self, text: str, named: str) -> str:
        """The reason why a job waits, with what an admin has closed where it would run."""
        closed = self.closed.get(self.location(named))
        return f"{text} {closed}" if closed else text

    def why_none(self, text: str) -> Wait:
        """The same where no host takes anything."""
        if not self.in_service:
            return Wait(WaitReason.NO_HOST, NO_HOST)
        return Wait(WaitReason.NO_HOST_UP, " ".join([text, *self.closed.values()]))


@dataclass(frozen=True, slots=True)
class NeverFits:
    """A job that could not be placed if all hosts were empty: which part of it, and why."""

    field: str
    text: str


def resolved(named: str, locations: Iterable[str]) -> str:
    """A location that a client names and nobody defined is answered by the default one: Google's SDK only lets its
    own region names through."""
    return named if named in locations else DEFAULT


def locations() -> list[str]:
    """The names of those that somebody defined."""
    return [location.name for location in map(_LOCATION.build, _locations())]


def ports() -> range:
    low, high = settings.TRAINYARD.ports
    return range(low, high + 1)


def replica_requests(spec: CustomJobSpec, types: Types = NO_TYPES) -> tuple[ReplicaRequest, ...]:
    return tuple(ReplicaRequest(name, needs(pool.machine, types)) for name, _, _, pool in spec.replicas())


def columns_of(
    spec: CustomJobSpec, labels: Mapping[str, str], types: Types = NO_TYPES, highest: str = "high"
) -> dict[str, Any]:
    """What the scheduler asks of a job, as its row keeps it."""
    return {
        "resource_request": resource_requests.encode_request(spec, types),
        "timeout_s": spec.timeout_s,
        "wait_limit_s": spec.wait_limit_s,
        "priority": priority_of(labels, highest),
        "spot": spec.strategy == "SPOT",
    }


def read_capacity(held: Sequence[ClaimHolder] | None = None) -> LocationCapacity:
    """`held`: what runs hold, where that was read already."""
    locations = {row[0]: _LOCATION.build(row) for row in _locations()}
    rows = [_host(row, locations) for row in _hosts()]
    up = [host for host in rows if _takes_jobs(host)]
    names = frozenset(location.name for location in locations.values())
    return LocationCapacity(
        {host.pk: host for host in up},
        tuple(_views(up, claim_holders.read_holders() if held is None else held)),
        names,
        bool(rows),
        _closed(rows),
    )


def _host(columns: Row, locations: Mapping[int, Location]) -> Host:
    own = len(_HOST.names)
    host = _HOST.build(columns[:own])
    host.location = locations[host.location_id]
    host_maintenance.attach(host, columns[own:])
    return host


def _takes_jobs(host: Host) -> bool:
    maintenance = maintenance_of(host)
    return host.status == HostStatus.UP and not maintenance.cordoned and not maintenance.gone_at


def _closed(rows: Sequence[Host]) -> dict[str, str]:
    """For each location, which of its hosts take no new jobs, by whom and why."""
    told: dict[str, list[str]] = defaultdict(list)
    for host in rows:
        if maintenance_of(host).cordoned and host.status == HostStatus.UP:
            told[host.location.name].append(host_maintenance.closed_text(host))
    return {location: f"{'; '.join(_some(each))}." for location, each in told.items()}


def _some(words: Sequence[str]) -> list[str]:
    more = more_text(words, MAX_CLOSED).strip()
    return [*words[:MAX_CLOSED], *([more] if more else [])]


def refusal(spec: CustomJobSpec, named: str, types: Types = NO_TYPES) -> NeverFits | None:
    """Why this job could not be placed on the location's hosts if all of them were empty.

    Hosts that nobody has looked at yet could be anything, so without a known one a job waits.
    """
    location = resolved(named, locations())
    views = empty_hosts(location)
    if not views:
        return None
    for number, pool in enumerate(spec.pools):
        wanted = needs(pool.machine, types) if pool else None
        if wanted is not None and pool is not None and not any(holds(view, wanted) for view in views):
            # A type of its own asks for more than it names: say what that is.
            named = pool.machine.machine_type if pool.machine.machine_type != "host" else ""
            asked = f"{named} is {needs_text(wanted)}" if named else needs_text(wanted)
            where = f"job_spec.worker_pool_specs[{number}].machine_spec"
            about = "machine_type" if named else "accelerator_type"
            text = f"No host of {location} can ever hold one replica: {asked}. {what_exists(views)}"
            return NeverFits(f"{where}.{about}", text)
    never = never_fits(replica_requests(spec, types), views, location)
    return NeverFits("job_spec.worker_pool_specs", never) if never else None


def holds(view: HostView, wanted: Needs) -> bool:
    """Could this host, were it empty, hold one replica?"""
    gpus = sum(gpu.accelerator_type == wanted.accelerator_type for gpu in view.gpus)
    return view.cpus >= wanted.cpus and view.memory_mb >= wanted.memory_mb and gpus >= wanted.gpus


def what_exists(views: Sequence[HostView]) -> str:
    """The kinds of hosts there are, most of a kind first."""
    kinds = Counter(
        Needs(view.cpus, view.memory_mb, kind, count)
        for view in views
        for kind, count in (Counter(gpu.accelerator_type for gpu in view.gpus) or {"": 0}).items()
    )
    shown = [f"{count} with {needs_text(kind)}" for kind, count in kinds.most_common(MAX_KINDS)]
    return f"There are: {'; '.join(shown)}."


def fits(view: HostView, wanted: Needs) -> bool:
    """Does it hold one replica beside what it holds now?"""
    free = [gpu.accelerator_type for gpu in view.gpus if gpu.uuid not in view.used_gpus]
    return (
        view.cpus - view.used_cpus >= wanted.cpus
        and view.memory_mb - view.used_memory_mb >= wanted.memory_mb
        and free.count(wanted.accelerator_type) >= wanted.gpus
    )


def empty_hosts(location: str) -> list[HostView]:
    """The location's hosts as far as they are known, as if nothing ran there."""
    place = Location(name=location)
    rows = [_HOST.build(row) for row in _known(location=location)]
    gpus = _gpus(rows)
    return [_view(host, place, gpus[host.pk]) for host in rows]


def _views(hosts: Sequence[Host], held: Sequence[ClaimHolder]) -> list[HostView]:
    gpus = _gpus(hosts)
    near = _topologies(gpus)
    unfit: dict[int, set[str]] = defaultdict(set)
    for pk, uuid in _unfit():
        unfit[pk].add(uuid)
    cpus: dict[int, float] = defaultdict(float)
    memory_mb: dict[int, int] = defaultdict(int)
    used_ports: dict[int, set[int]] = defaultdict(set)
    for run in held:
        cpus[run.host] += run.cpus
        memory_mb[run.host] += run.memory_mb
        used_ports[run.host].add(run.port)
    used_gpus: dict[int, set[str]] = defaultdict(set)
    for pk, uuid in _claims():
        used_gpus[pk].add(uuid)
    for pk, stray_cpus, stray_memory_mb, port, uuids in _strays():
        cpus[pk] += stray_cpus
        memory_mb[pk] += stray_memory_mb
        used_gpus[pk].update(uuids)
        used_ports[pk].update([] if port is None else [port])
    return [
        _view(
            host,
            host.location,
            gpus[host.pk],
            cpus[host.pk],
            memory_mb[host.pk],
            used_gpus[host.pk] | unfit[host.pk],
            used_ports[host.pk],
            unfit[host.pk] - used_gpus[host.pk],
            near.get(host.pk),
        )
        for host in hosts
    ]


def _topologies(gpus: Mapping[int, Sequence[GpuView]]) -> dict[int, Topology]:
    """Which GPUs are near to each other, where hosts have told."""
    many = [pk for pk, of in gpus.items() if len(of) > 2]
    if not many:
        return {}
    rows = Host.every.filter(pk__in=many, facts__has_key="topology").order_by()
    read = {
        pk: topology.read(told, {gpu.index: gpu.uuid for gpu in gpus[pk]})
        for pk, told in rows.values_list("pk", KT("facts__topology"))
    }
    return {pk: near for pk, near in read.items() if near is not None}


def _gpus(hosts: Sequence[Host]) -> dict[int, list[GpuView]]:
    found: dict[int, list[GpuView]] = defaultdict(list)
    # Plain columns: a hundred hosts have a thousand of them, and this is asked at each submission.
    for host, uuid, kind, index in _gpus_of(hosts=[host.pk for host in hosts]):
        found[host].append(GpuView(uuid, kind, index))
    return found


def _view(
    host: Host,
    place: Location,
    gpus: Sequence[GpuView],
    used_cpus: float = 0.0,
    used_memory_mb: int = 0,
    used_gpus: Iterable[str] = (),
    used_ports: Iterable[int] = (),
    unfit: Iterable[str] = (),
    near: Topology | None = None,
) -> HostView:
    return HostView(
        id=host.pk,
        name=host.name,
        location=place.name,
        address=host.address,
        cpus=float(host.cpus),
        memory_mb=host.memory_mb,
        gpus=tuple(gpus),
        used_cpus=used_cpus,
        used_memory_mb=used_memory_mb,
        used_gpus=frozenset(used_gpus),
        used_ports=frozenset(used_ports),
        unfit=frozenset(unfit),
        topology=near,
    )
