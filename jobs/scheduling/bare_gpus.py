"""Hosts that give a container its GPUs without the driver's libraries: for advice about jobs with an image."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from agents.models import Gpu, Host
from jobs.projects import locations
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.image_aliases import with_images
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.machine_types import Types, needs
from jobs.rules.spec.runtime_choice import DOCKER, PODMAN, engine_of
from jobs.scheduling import engines, machine_types
from jobs.scheduling.image_aliases import images_used


def executed(spec: CustomJobSpec, location: str) -> CustomJobSpec:
    """The spec as it would be executed there: with the images and the engine that are used."""
    try:
        spec = with_images(spec, images_used(spec, location))
    except InvalidDocument:
        return spec
    return with_images(spec, {}, machine_types.engine_of(spec, location))


def hosts(spec: CustomJobSpec, location: str, types: Types) -> list[str]:
    """Those that a pool of this job may get. `spec`: as it is executed. Only jobs with an image and GPUs ask."""
    asked = _asked(spec, types)
    if not asked:
        return []
    machines = Host.machines.exclude(facts={})
    if named := locations.resolved(location, locations.names()):
        machines = machines.filter(location__name=named)
    cards: dict[int, dict[str, set[str]]] = {}
    rows = Gpu.objects.filter(host__in=machines, present=True)
    for host, kind, uuid in rows.values_list("host", "accelerator_type", "uuid"):
        cards.setdefault(host, {}).setdefault(kind, set()).add(uuid)
    return sorted(
        host.name
        for host in machines.filter(pk__in=cards).only("name", "facts")
        if any(is_bare(engine, host.facts, cards[host.pk].get(kind, ())) for engine, kind in asked)
    )


def _asked(spec: CustomJobSpec, types: Types) -> set[tuple[str, str]]:
    """(engine, accelerator type) of each pool whose containers get GPUs by their names, or by their nodes alone."""
    pools = [(pool, needs(pool.machine, types)) for pool in spec.pools if pool is not None]
    return {
        (engine, need.accelerator_type)
        for pool, need in pools
        for engine in engine_of(pool)
        # Apptainer brings the driver of the host into each container.
        if need.gpus and engine in (PODMAN, DOCKER)
    }


def is_bare(engine: str, facts: Mapping[str, Any], uuids: Collection[str]) -> bool:
    """Whether containers of this engine get these GPUs as device nodes alone. False where the host has not said so."""
    if not uuids or not facts.get("gpu_nodes") or engine not in engines.read_named(facts.get("runtimes")):
        return False
    if engine == DOCKER:
        if facts.get("nvidia_hook"):
            return False
        takes_specs = (facts.get("docker") or {}).get("cdi")
        if not takes_specs:
            return takes_specs is False
    named = facts.get("cdi")
    return named is not None and not set(named).issuperset(uuids)
