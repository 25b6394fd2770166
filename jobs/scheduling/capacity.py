"""Capacity, read from rows: which hosts a location has, what is free on them, and which jobs could never be placed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce

from agents.infra.sql import Parameter, PartialModel, Row, SelectStatement
from agents.infra.texts import join, said
from agents.models import Gpu, GpuState, Host, HostStatus, Location
from jobs.lifecycle import host_maintenance
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.models import GpuClaim, LoginTemplate
from jobs.projects import claim_holders, locations
from jobs.projects.claim_holders import ClaimHolder
from jobs.projects.locations import Bindings
from jobs.rules.list_text import list_text
from jobs.rules.scheduling import resource_requests, topology
from jobs.rules.scheduling.order import priority_of
from jobs.rules.scheduling.placement import GpuView, HostView, ReplicaRequest, needs_text, never_fits
from jobs.rules.scheduling.views import Topology, engines_in, location_of, scope_of
from jobs.rules.scheduling.wait_reasons import Wait, WaitReason
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.machine_types import NO_TYPES, Needs, Types, needs
from jobs.rules.spec.runtime_choice import engines_of
from jobs.scheduling import engines, host_shapes

MAX_CLOSED = 3
MAX_KINDS = 6
NO_HOST = said("No host is in service. Add one under Hosts.")

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
        # What the order of a run needs of its host.
        "data_address",
        "found_address",
        "pid_namespaces",
    ),
)
_LOCATION = PartialModel(Location)
_hosts = SelectStatement(
    lambda: Host.machines.order_by("name").values_list(*_HOST.names, *host_maintenance.COLUMNS)
)
_templates = SelectStatement(lambda: LoginTemplate.objects.order_by().values_list("host"))
_logins = SelectStatement(
    lambda: (
        Host.objects.filter(machine__isnull=False, status=HostStatus.UP, maintenance__gone_at=None)
        .order_by("pk")
        .values_list("machine", "project_login__project", *_HOST.names)
    )
)
_known = SelectStatement(
    lambda: (
        Host.machines.filter(location__name=Parameter("location"), cpus__gt=0)
        .order_by("name")
        .values_list(*_HOST.names)
    )
)
_locations = SelectStatement(lambda: Location.objects.order_by("name").values_list(*_LOCATION.names))
_gpus_of_machines = SelectStatement(
    lambda: (
        Gpu.objects.filter(host__machine=None, host__retired_at=None, present=True)
        .order_by("host", "index")
        .values_list("host", "uuid", "accelerator_type", "index")
    )
)
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
# From the rows that have the unique constraint: these GPUs are held, whatever the rows of runs say.
_claims = SelectStatement(
    lambda: GpuClaim.objects.filter(released_at=None).order_by().values_list("gpu__host", "gpu__uuid")
)


# Runs that live on although a restored backup has forgotten them. Only those under our seal count: otherwise anybody
# on a host could occupy it with false runs.
_strays = SelectStatement(
    lambda: (
        claim_holders.living_strays()
        .order_by()
        .values_list(Coalesce("host__machine", "host"), "cpus", "memory_mb", "port", "gpu_uuids")
    )
)
_topology_of = SelectStatement(
    lambda: (
        Host.every.filter(pk__among=Parameter("hosts"), facts__has_key="topology")
        .order_by()
        .values_list("pk", KT("facts__topology"))
    )
)
# What `read_capacity` asks the database, in its order, for `read_ahead`.
READS: Mapping[SelectStatement, Mapping[str, Any]] = {
    each: {}
    for each in (
        _locations,
        _hosts,
        _templates,
        _gpus_of_machines,
        _unfit,
        _claims,
        _strays,
        locations.BINDINGS,
    )
}


@dataclass(frozen=True, slots=True)
class ClusterCapacity:
    """The hosts of all locations on which replicas may be placed now, and what of each is taken."""

    hosts: Mapping[int, Host]
    views: tuple[HostView, ...]
    locations: frozenset[str]
    in_service: bool
    # By location: why hosts take nothing although they are up, as text.
    closed: Mapping[str, str] = field(default_factory=dict)
    bindings: Bindings = field(default_factory=Bindings)
    # By machine on which each project has a login of its own: the logins that are up, by project.
    logins: Mapping[int, Mapping[int, Host]] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[str, str]:
        """The accelerator type of each GPU, by UUID."""
        return {gpu.uuid: gpu.accelerator_type for view in self.views for gpu in view.gpus}

    def location(self, named: str) -> str:
        return locations.resolved(named, self.locations)

    def scope(self, location: str, project: int, needed: Collection[str] = ()) -> str:
        """Where in this location jobs of the project may run, as the rules take it (rules/scheduling/views.py).
        `needed`: the container engines that they need."""
        split = any(self.hosts[host].location.name == location for host in self.logins)
        scarce = needed if engines.lacking(self.views, location, needed) else ()
        return scope_of(location, project if split else None, scarce)

    def login(self, host: int, project: int) -> Host:
        """The row under which a job of the project runs on this machine: a login of its own, or the machine's."""
        return self.logins[host][project] if host in self.logins else self.hosts[host]

    def why(self, text: str, scope: str, project: int | None = None) -> str:
        """The reason why a job waits, with the hosts of its location that an admin has closed, those on which its
        project has no login that is up, and those that cannot run its image."""
        location, needed = self.location(location_of(scope)), engines_in(scope)
        parts = [text, self.closed.get(location, ""), self._without_login(location, project)]
        parts.append(engines.lacking_text(self.views, location, needed))
        return join(" ", [part for part in parts if part])

    def _without_login(self, location: str, project: int | None) -> str:
        hosts = [
            view.name
            for view in self.views
            if view.location == location and view.serves is not None and project not in view.serves
        ]
        if project is None or not hosts:
            return ""
        return said("The project has no login that is up on {hosts}.", hosts=list_text(hosts, MAX_CLOSED))

    def why_none(self, text: str) -> Wait:
        """The same if no host takes jobs."""
        if not self.in_service:
            return Wait(WaitReason.NO_HOST, NO_HOST)
        return Wait(WaitReason.NO_HOST_UP, join(" ", [text, *self.closed.values()]))


@dataclass(frozen=True, slots=True)
class NeverFits:
    """Why a job could not be placed even if all hosts were empty, and the field that asks for too much."""

    field: str
    text: str


def ports() -> range:
    low, high = settings.TRAINYARD.ports
    return range(low, high + 1)


def replica_requests(spec: CustomJobSpec, types: Types = NO_TYPES) -> tuple[ReplicaRequest, ...]:
    return tuple(ReplicaRequest(name, needs(pool.machine, types)) for name, _, _, pool in spec.replicas())


def columns_of(
    spec: CustomJobSpec, labels: Mapping[str, str], types: Types = NO_TYPES, highest: str = "high"
) -> dict[str, Any]:
    """The columns of a job's row that the scheduler and the list of jobs need: its request, limits and priority."""
    request = resource_requests.encode_request(spec, types)
    return {
        "resource_request": request,
        "gpu_count": sum(resource_requests.decode_request(request).gpus.values()),
        "timeout_s": spec.timeout_s,
        "wait_limit_s": spec.wait_limit_s,
        "priority": priority_of(labels, highest),
        "spot": spec.strategy == "SPOT",
    }


def read_capacity(held: Sequence[ClaimHolder] | None = None) -> ClusterCapacity:
    """Read the capacity of all hosts. `held`: what runs hold, if the caller has read it already."""
    places = {row[0]: _LOCATION.build(row) for row in _locations()}
    rows = [_host(row, places) for row in _hosts()]
    up = [host for host in rows if _takes_jobs(host)]
    names = frozenset(location.name for location in places.values())
    logins = _read_logins(up)
    return ClusterCapacity(
        {host.pk: host for host in up},
        tuple(_views(up, claim_holders.read_holders() if held is None else held, logins)),
        names,
        bool(rows),
        _closed(rows),
        locations.read_bindings(),
        logins,
    )


def _read_logins(machines: Sequence[Host]) -> dict[int, dict[int, Host]]:
    """For each of these machines on which each project has a login of its own, the logins that are up, by project."""
    split = _templates.column()
    found: dict[int, dict[int, Host]] = {host.pk: {} for host in machines if host.pk in split}
    if found:
        for machine, project, *columns in _logins():
            if machine in found and project is not None:
                found[machine][project] = _HOST.build(columns)
    return found


def _host(columns: Row, places: Mapping[int, Location]) -> Host:
    own = len(_HOST.names)
    host = _HOST.build(columns[:own])
    host.location = places[host.location_id]
    host_maintenance.attach(host, columns[own:])
    return host


def _takes_jobs(host: Host) -> bool:
    maintenance = maintenance_of(host)
    return host.status == HostStatus.UP and not maintenance.cordoned and not maintenance.gone_at


def _closed(rows: Sequence[Host]) -> dict[str, str]:
    """For each location, which of its hosts that are up take no new jobs, who closed them, and why."""
    closed: dict[str, list[str]] = defaultdict(list)
    for host in rows:
        if maintenance_of(host).cordoned and host.status == HostStatus.UP:
            closed[host.location.name].append(host_maintenance.closed_text(host))
    return {location: said("{words}.", words=_shortened(each)) for location, each in closed.items()}


def _shortened(texts: Sequence[str]) -> str:
    shown, left_out = list(texts[:MAX_CLOSED]), len(texts) - MAX_CLOSED
    return join("; ", [*shown, said("and {number} more", number=left_out)] if left_out > 0 else shown)


def refusal(spec: CustomJobSpec, named: str, types: Types = NO_TYPES) -> NeverFits | None:
    """Why this job could not be placed even if all hosts of the location were empty; None if it could.

    A host that was not checked yet could have anything. So while no host of the location is known, the job waits.
    """
    location = locations.resolved(named, locations.names())
    needed = engines_of(spec)
    having = engines.incomplete() if needed else {}
    if not having and _surely_fits(spec, location, types):
        return None
    # With no host that can run its image a job is refused in other words (machine_types.py).
    views = [view for view in empty_hosts(location) if having.get(view.id, needed) >= needed]
    if not views:
        return None
    for number, pool in enumerate(spec.pools):
        wanted = needs(pool.machine, types) if pool else None
        if wanted is not None and pool is not None and not any(holds(view, wanted) for view in views):
            # The name of a machine type does not say what it asks for: name that too.
            named = pool.machine.machine_type if pool.machine.machine_type != "host" else ""
            asked = needs_text(wanted)
            if named:
                asked = said("{machine_type} is {needs}", machine_type=named, needs=asked)
            where = f"job_spec.worker_pool_specs[{number}].machine_spec"
            about = "machine_type" if named else "accelerator_type"
            text = said(
                "No host of {location} can ever hold one replica: {needs}. {what_exists}",
                location=location,
                needs=asked,
                what_exists=what_exists(views),
            )
            return NeverFits(f"{where}.{about}", text)
    never = never_fits(replica_requests(spec, types), views, location)
    return NeverFits("job_spec.worker_pool_specs", never) if never else None


def _surely_fits(spec: CustomJobSpec, location: str, types: Types) -> bool:
    """Whether each replica could have a host of its own. It is so for nearly all jobs, and found without a search."""
    shapes = host_shapes.recent_empty_shapes(location)
    pools = [pool for pool in spec.pools if pool]
    hosts = (host_shapes.hosts_that_hold(shapes, needs(pool.machine, types)) for pool in pools)
    return sum(pool.replica_count for pool in pools) <= min(hosts, default=0)


def holds(view: HostView, wanted: Needs) -> bool:
    """Could this host hold one replica if it were empty?"""
    gpus = sum(gpu.accelerator_type == wanted.accelerator_type for gpu in view.gpus)
    return view.cpus >= wanted.cpus and view.memory_mb >= wanted.memory_mb and gpus >= wanted.gpus


def what_exists(views: Sequence[HostView]) -> str:
    """The kinds of hosts that exist, the most common first."""
    kinds = Counter(
        Needs(view.cpus, view.memory_mb, kind, count)
        for view in views
        for kind, count in (Counter(gpu.accelerator_type for gpu in view.gpus) or {"": 0}).items()
    )
    shown = [
        said("{number} with {needs}", number=count, needs=needs_text(kind))
        for kind, count in kinds.most_common(MAX_KINDS)
    ]
    return said("There are: {kinds}.", kinds=join("; ", shown))


def empty_hosts(location: str) -> list[HostView]:
    """The known hosts of the location, as if nothing ran there."""
    place = Location(name=location)
    rows = [_HOST.build(row) for row in _known(location=location)]
    gpus = _gpus(_gpus_of(hosts=[host.pk for host in rows]))
    return [_view(host, place, gpus[host.pk]) for host in rows]


def _views(
    hosts: Sequence[Host], held: Sequence[ClaimHolder], logins: Mapping[int, Mapping[int, Host]]
) -> list[HostView]:
    gpus = _gpus(_gpus_of_machines())
    topologies = _topologies({host.pk: gpus[host.pk] for host in hosts})
    having = engines.incomplete()
    unfit: dict[int, set[str]] = defaultdict(set)
    for pk, uuid in _unfit():
        unfit[pk].add(uuid)
    cpus: dict[int, float] = defaultdict(float)
    memory_mb: dict[int, int] = defaultdict(int)
    used_ports: dict[int, set[int]] = defaultdict(set)
    for run in held:
        cpus[run.machine] += run.cpus
        memory_mb[run.machine] += run.memory_mb
        used_ports[run.machine].add(run.port)
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
            topologies.get(host.pk),
            frozenset(logins[host.pk]) if host.pk in logins else None,
            having.get(host.pk),
        )
        for host in hosts
    ]


def _topologies(gpus: Mapping[int, Sequence[GpuView]]) -> dict[int, Topology]:
    """How near the GPUs of a host are to each other, for hosts that reported it."""
    many = [pk for pk, of in gpus.items() if len(of) > 2]
    if not many:
        return {}
    read = {
        pk: topology.read(reported, {gpu.index: gpu.uuid for gpu in gpus[pk]})
        for pk, reported in _topology_of(hosts=many)
    }
    return {pk: found for pk, found in read.items() if found is not None}


def _gpus(rows: Iterable[Row]) -> dict[int, list[GpuView]]:
    found: dict[int, list[GpuView]] = defaultdict(list)
    # Plain columns, not objects: a hundred hosts have a thousand GPUs, and each submission reads them.
    for host, uuid, kind, index in rows:
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
    gpu_topology: Topology | None = None,
    serves: frozenset[int] | None = None,
    having: frozenset[str] | None = None,
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
        topology=gpu_topology,
        serves=serves,
        engines=having,
    )
