"""On which storage a job's output directory lies, for the hosts that it may run on and that reported their mounts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agents.models import Host
from jobs.lifecycle import snapshot
from jobs.models import Job, Project
from jobs.outputs import ordering
from jobs.projects import locations
from jobs.rules.spec.advice import BIND, Advice, advice
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.image_aliases import as_kept
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.machine_types import NO_TYPES, Types, UnknownMachine
from jobs.rules.spec.output_addresses import output_addresses
from jobs.rules.spec.reduction_advice import NO_CARDS
from jobs.rules.spec.without_effect import kept_fields
from jobs.scheduling import bare_gpus, network_cards


def advice_about(
    spec: CustomJobSpec,
    location: str,
    types: Types = NO_TYPES,
    project: Project | None = None,
    executed: CustomJobSpec | None = None,
) -> tuple[Advice, ...]:
    """Advice for a person about this job in this location. `executed`: with its images as they were at the submit."""
    base = spec.base_output_directory
    found = output_addresses(spec)
    missing, apart = set[str](), set[str]()
    if project and found.named:
        shared = ordering.shared_directories(project, location, found.buckets)
        missing, apart = ordering.buckets_of(project, found, shared)
    is_path = base.startswith("/") and found.base is None
    held_by = storage(base, location) if is_path else None
    bare = bare_gpus.hosts(executed or bare_gpus.executed(spec, location), location, types)
    cards = network_cards.of_job(spec, location)
    if project and (held_by or bare or cards != NO_CARDS) and not _serves(location, project):
        # For this project its hosts do not exist: an old job, or one that would be refused.
        held_by, bare, cards = None, [], NO_CARDS
    return advice(spec, held_by, types, missing, apart, cards, bare)


def _serves(location: str, project: Project) -> bool:
    named = locations.resolved(location, locations.names())
    return locations.read_bindings().serves(named, project.pk)


def advice_of(job: Job) -> tuple[Advice, ...]:
    """The same for a job that was accepted; empty if its document cannot be read any more."""
    try:
        spec, types = snapshot.spec_of(job), snapshot.types_of(job)
        return advice_about(spec, job.location_name, types, job.project, as_kept(spec, job.resolved))
    except (InvalidDocument, UnknownMachine):
        return ()


def kept_by(job: Job) -> tuple[tuple[str, str], ...]:
    """The fields of the job's document that have no effect; empty if it cannot be read any more."""
    try:
        return kept_fields(snapshot.spec_of(job))
    except (InvalidDocument, UnknownMachine):
        return ()


def storage(path: str, location: str) -> dict[str, str] | None:
    """By host, the storage that holds the path there; "" for a disk of the host. None if no host reported mounts."""
    named = locations.resolved(location, locations.names())
    hosts = Host.machines.filter(location__name=named, cpus__gt=0).values_list("name", "boot_id", "facts")
    reported = {
        name: holder(path, facts["shared"], boot)
        for name, boot, facts in hosts
        if isinstance(facts.get("shared"), list)
    }
    return reported or None


def holder(path: str, mounts: Iterable[Mapping[str, Any]], boot_id: str = "") -> str:
    """The storage of the longest mount point above the path. Hosts report local mounts below a shared one, too.

    A network file system has the same name wherever it is mounted. A bind mount may come from anywhere: two of them
    are the same only on the same machine (boot id); for different machines that cannot be known.
    """
    inside = path.rstrip("/") + "/"
    above = [mount for mount in mounts if inside.startswith(str(mount["path"]).rstrip("/") + "/")]
    found = max(above, key=lambda mount: len(str(mount["path"])), default=None)
    if found is None:
        return ""
    root = str(found.get("root", "/")).rstrip("/")
    rest = inside[len(str(found["path"]).rstrip("/")) :].rstrip("/")
    if found["network"]:
        return f"{found['fstype']} {str(found['source']).rstrip('/')}{root}{rest}"
    return f"{BIND}{root}{rest} on {found.get('device', '')} of machine {boot_id[:8]}" if root else ""
