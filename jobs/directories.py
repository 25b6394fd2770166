"""Where a job's output directory is on the hosts that it may run on, as far as they told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agents.models import Host, Location
from jobs import floor, snapshot
from jobs.models import Job
from jobs.rules.advice import Advice, advice
from jobs.rules.customjob import CustomJobSpec
from jobs.rules.fields import Refused
from jobs.rules.machines import NO_TYPES, Types, UnknownMachine


def advice_about(spec: CustomJobSpec, location: str, types: Types = NO_TYPES) -> tuple[Advice, ...]:
    """What a person should know about this job in this location."""
    base = spec.base_output_directory
    return advice(spec, storage(base, location) if base.startswith("/") else None, types)


def advice_of(job: Job) -> tuple[Advice, ...]:
    """The same for a job that was accepted; nothing if it cannot be read any more."""
    try:
        return advice_about(snapshot.spec_of(job), job.location_name, snapshot.types_of(job))
    except (Refused, UnknownMachine):
        return ()


def storage(path: str, location: str) -> dict[str, str] | None:
    """Host -> the network storage that holds the path there, "" for a disk of its own. None if nobody has told."""
    named = floor.resolved(location, Location.objects.values_list("name", flat=True))
    hosts = Host.objects.filter(location__name=named, cpus__gt=0).values_list("name", "facts")
    told = {name: facts["shared"] for name, facts in hosts if isinstance(facts.get("shared"), list)}
    return {name: holder(path, mounts) for name, mounts in told.items()} or None


def holder(path: str, mounts: Iterable[Mapping[str, Any]]) -> str:
    """The storage of the longest mount point above the path. Local mounts below a shared one are told, too."""
    inside = path.rstrip("/") + "/"
    above = [mount for mount in mounts if inside.startswith(str(mount["path"]).rstrip("/") + "/")]
    found = max(above, key=lambda mount: len(str(mount["path"])), default=None)
    return f"{found['fstype']} {found['source']}" if found and found["network"] else ""
