"""Machine types: Google's, and those that admins define. A job keeps the numbers that a type had at its submit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.fields.json import KT

from agents.infra.refusals import Refused
from agents.infra.sql import Parameter, PartialModel, SelectStatement
from agents.infra.texts import said
from agents.models import Gpu, Host, Location
from jobs.models import MachineType
from jobs.projects import audit, locations
from jobs.rules.spec import machine_types
from jobs.rules.spec.custom_job import ACCELERATORS, CustomJob, CustomJobSpec
from jobs.rules.spec.image_aliases import with_images
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.machine_types import Needs, Types, allocatable_mb
from jobs.rules.spec.parse import parse_custom_job
from jobs.rules.spec.runtime_choice import NOTHING_KNOWN, Offer, check_runtimes, choose_engine, with_engine
from jobs.rules.spec.tasks import HOST_IMAGE
from jobs.scheduling import engines
from jobs.scheduling.image_aliases import images_used

NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
ACCELERATOR = re.compile(r"(?:NVIDIA|AMD|INTEL)_[A-Z0-9_]{1,56}", re.ASCII)
KIND = "machine type"
NUMBERS = ("cpus", "memory_mb", "accelerator_type", "accelerator_count", "note")
MIN_CPUS, MAX_CPUS = 0.01, 4_096
MAX_MEMORY_MB = 1 << 26
MAX_GPUS = 64

_TYPE = PartialModel(MachineType)
_types = SelectStatement(
    lambda: (
        MachineType.objects.filter(Q(location=None) | Q(location__name=Parameter("location")))
        .order_by("name")
        .values_list(*_TYPE.names)
    )
)


@dataclass(frozen=True, slots=True)
class OfferedType:
    """A machine type that jobs may ask for. `needs` has the allocatable memory, `memory_mb` is nominal. `own`: defined
    by an admin."""

    name: str
    needs: Needs
    memory_mb: int
    own: bool = False


def of_location(named: str) -> Types:
    """The types that admins defined for this location, by name. A type of the location wins over one for all."""
    rows = [_TYPE.build(row) for row in _types(location=locations.resolved(named, locations.names()))]
    everywhere_first = sorted(rows, key=lambda row: row.location_id is not None)
    return {row.name: _needs(row) for row in everywhere_first}


def read(document: object, named: str) -> tuple[CustomJob, Types]:
    """Parse a job document for the location `named`. Returns the job, and the machine types that exist there.

    Raises InvalidDocument. Its error about an unknown GPU type names the GPU types of the location.
    """
    asked, types, _engine = read_with_engine(document, named)
    return asked, types


def read_with_engine(document: object, named: str) -> tuple[CustomJob, Types, str]:
    """The same, with what `engine_of` would say of the job, by the same look at the hosts."""
    types = of_location(named)
    try:
        asked = parse_custom_job(document, types)
    except InvalidDocument as refused:
        if any(each.field.endswith(".accelerator_type") for each in refused.violations):
            parse_custom_job(document, types, gpus_of(named))
        raise
    images = images_used(asked.job_spec, named)
    used = with_images(asked.job_spec, images)
    offer = offer_of(used, named)
    engine = choose_engine(offer)
    check_runtimes(with_images(asked.job_spec, images, engine), offer)
    return asked, types, _if_needed(engine, used)


def offer_of(spec: CustomJobSpec, named: str) -> Offer:
    """What the hosts of the location can run containers with. Asked only for jobs that need it."""
    if all(pool is None or pool.task.image == HOST_IMAGE for pool in spec.pools):
        return NOTHING_KNOWN
    hosts = Host.machines.all()
    if location := locations.resolved(named, locations.names()):
        hosts = hosts.filter(location__name=location)
    found = hosts.exclude(facts={}).order_by().values_list("name", KT("facts__runtimes"))
    return Offer({name: engines.read_named(runtimes) for name, runtimes in found})


def engine_of(spec: CustomJobSpec, named: str) -> str:
    """The engine for pools of this spec with an image that name none (`choose_engine`); empty too if there is no such
    pool. `spec`: with its aliases."""
    return _if_needed(choose_engine(offer_of(spec, named)), spec)


def _if_needed(engine: str, spec: CustomJobSpec) -> str:
    return engine if any(pool and with_engine(pool, engine) != pool for pool in spec.pools) else ""


def gpus_of(named: str) -> set[str]:
    """The types of GPUs that the hosts of a location have."""
    location = locations.resolved(named, locations.names())
    there = Gpu.objects.filter(present=True, host__retired_at=None, host__location__name=location)
    return set(there.values_list("accelerator_type", flat=True).distinct())


def types_to_keep(spec: CustomJobSpec, types: Types) -> dict[str, object]:
    """The types that the job asks for, in the form that its row keeps."""
    asked = {pool.machine.machine_type for pool in spec.pools if pool is not None}
    return {name: asdict(types[name]) for name in sorted(asked & types.keys())}


def catalogue(named: str) -> Iterable[OfferedType]:
    """Every type that may be asked for in this location, the admins' own first."""
    location = locations.resolved(named, locations.names())
    nominal = {
        row.name: row.memory_mb
        for row in sorted(
            MachineType.objects.exclude(location__in=Location.objects.exclude(name=location)),
            key=lambda row: row.location_id is not None,
        )
    }
    for name, needs in sorted(of_location(location).items()):
        yield OfferedType(name, needs, nominal[name], own=True)
    yield from _well_known()


@cache
def _well_known() -> tuple[OfferedType, ...]:
    named = ((name, machine_types.nominal(name)) for name in machine_types.well_known())
    return tuple(
        OfferedType(
            name,
            Needs(known.cpus, allocatable_mb(known.memory_mb), known.accelerator_type, known.gpus),
            known.memory_mb,
        )
        for name, known in named
        if known is not None
    )


def define(
    name: str,
    location: str,
    cpus: float,
    memory_mb: int,
    accelerator_type: str,
    accelerator_count: int,
    note: str,
    actor: str,
    now: datetime,
) -> MachineType:
    """Define a type, or change the numbers of one that exists. An empty `location` means all. Raises Refused."""
    _check(name, cpus, memory_mb, accelerator_type, accelerator_count)
    place = _location(location)
    numbers = {
        "cpus": cpus,
        "memory_mb": memory_mb,
        "accelerator_type": accelerator_type,
        "accelerator_count": accelerator_count,
        "note": note[:200],
    }
    stamp = {"changed_at": now, "changed_by": actor[:150]}
    with transaction.atomic():
        row = MachineType.objects.select_for_update(of=("self",)).filter(name=name, location=place).first()
        if row is None:
            try:
                with transaction.atomic():
                    row = MachineType.objects.create(name=name, location=place, **numbers, **stamp)
                    audit.record(actor, "machine_type.define", KIND, _named(row), None, numbers, now)
                    return row
            except IntegrityError:
                row = MachineType.objects.select_for_update(of=("self",)).get(name=name, location=place)
        before = {column: getattr(row, column) for column in numbers}
        MachineType.objects.filter(pk=row.pk).update(**numbers, **stamp)
        audit.record(actor, "machine_type.change", KIND, _named(row), before, numbers, now)
        row.refresh_from_db()
    return row


def remove(row: MachineType, actor: str, now: datetime) -> None:
    """Remove a type: new jobs cannot ask for it. Jobs that did keep its numbers."""
    with transaction.atomic():
        before = {column: getattr(row, column) for column in NUMBERS}
        if MachineType.objects.filter(pk=row.pk).delete()[0]:
            audit.record(actor, "machine_type.remove", KIND, _named(row), before, None, now)


def _named(row: MachineType) -> str:
    return f"{row.name} in {row.location.name}" if row.location else row.name


def _needs(row: MachineType) -> Needs:
    return Needs(row.cpus, allocatable_mb(row.memory_mb), row.accelerator_type, row.accelerator_count)


def _location(named: str) -> Location | None:
    if not named:
        return None
    found = Location.objects.filter(name=named).first()
    if found is None:
        known = ", ".join(Location.objects.values_list("name", flat=True)[:20])
        raise Refused(
            "location",
            said(
                "There is no location {location}. There are: {names}; or leave it out.",
                location=repr(named[:63]),
                names=known,
            ),
        )
    return found


def _check(name: str, cpus: float, memory_mb: int, accelerator_type: str, accelerator_count: int) -> None:
    if not NAME.fullmatch(name):
        raise Refused(
            "name", said("must be 1 to 63 lower-case letters, digits and dashes, and begin with a letter.")
        )
    if machine_types.is_taken(name):
        raise Refused("name", said("{name} means something already. Choose another name.", name=name))
    if not MIN_CPUS <= cpus <= MAX_CPUS:
        raise Refused("cpus", said("must be from {least} to {most}.", least=MIN_CPUS, most=MAX_CPUS))
    if not 0 <= memory_mb <= MAX_MEMORY_MB:
        raise Refused("memory_mb", said("must be from 0 to {most}.", most=MAX_MEMORY_MB))
    if not 0 <= accelerator_count <= MAX_GPUS:
        raise Refused("accelerator_count", said("must be from 0 to {most}.", most=MAX_GPUS))
    if bool(accelerator_type) != bool(accelerator_count):
        missing = "accelerator_count" if accelerator_type else "accelerator_type"
        raise Refused(
            missing, said("A GPU type and how many of it belong together; leave out both, or none.")
        )
    if accelerator_type and not (
        accelerator_type in ACCELERATORS.values() or ACCELERATOR.fullmatch(accelerator_type)
    ):
        raise Refused(
            "accelerator_type", said("must be a name such as NVIDIA_L4; Hosts shows those of yours.")
        )
