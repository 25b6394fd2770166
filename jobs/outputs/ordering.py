"""What a run's order says about output directories, and the rows of the hosts on which a job will write.

The caller owns the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F

from agents.models import Location
from jobs.artifacts import buckets, objects
from jobs.models import Bucket, HostOutputs, Job, LocationStorage, OutputStage, Project, Run
from jobs.projects import locations
from jobs.rules.spec.custom_job import CustomJobSpec, Pool
from jobs.rules.spec.output_addresses import (
    OUTPUT_NAMES,
    Address,
    OutputAddresses,
    output_addresses,
    variables_of,
)


@dataclass(frozen=True, slots=True)
class JobOutputs:
    """`directories`: by bucket, the directory that the hosts of the job's location share; "" for one of each host."""

    job: Job
    addresses: OutputAddresses
    directories: Mapping[str, str]

    @property
    def on_hosts(self) -> tuple[Address, ...]:
        """The addresses whose files each host has for itself."""
        return self.addresses.of({name: "" for name, shared in self.directories.items() if not shared})

    def order(self, pool: Pool) -> dict[str, Any]:
        """The part of a run's order (agents/README.md)."""
        base = self.addresses.base
        made = [f"{base.bucket}/{base.path}/{name}" for name in OUTPUT_NAMES] if base else []
        return {
            "outputs": {
                "key": str(self.job.pk),
                "buckets": dict(self.directories),
                "variables": variables_of(pool),
                "make": [each.replace("//", "/") for each in made],
            }
        }


def of_job(job: Job, spec: CustomJobSpec) -> JobOutputs | None:
    """None where the document names no cloud storage that is here."""
    addresses = output_addresses(spec)
    if not addresses.named:
        return None
    shared = shared_directories(job.project, job.location_name, addresses.buckets)
    missing, _ = buckets_of(job.project, addresses, shared)
    found = {name: shared.get(name, "") for name in addresses.buckets if name not in missing}
    return JobOutputs(job, addresses, found) if found else None


def buckets_of(
    project: Project, addresses: OutputAddresses, shared: Mapping[str, str]
) -> tuple[set[str], set[str]]:
    """(those that are named and the project does not have, those of which each host has files of its own)."""
    rows = Bucket.objects.filter(project=project, name__in=addresses.buckets)
    here = set(rows.values_list("name", flat=True)) | ({addresses.base.bucket} if addresses.base else set())
    return {*addresses.buckets} - here - {*shared}, here - {*shared}


def shared_directories(project: Project, location_name: str, names: Iterable[str]) -> dict[str, str]:
    """By bucket, the directory that all hosts of the location share, where an admin has said so.

    Not for a bucket of another project: naming it must not open its files.
    """
    location = locations.resolved(location_name, locations.names())
    rows = LocationStorage.objects.filter(location__in=Location.objects.filter(name=location))
    given = dict(rows.values_list("bucket", "directory"))
    above = given.pop("", "")
    asked = [name for name in names if name in given or above]
    foreign = set(
        Bucket.objects.filter(name__in=asked).exclude(project=project).values_list("name", flat=True)
    )
    return {name: given.get(name) or f"{above.rstrip('/')}/{name}" for name in asked if name not in foreign}


def expect(job: Job, spec: CustomJobSpec, runs: Iterable[Run], now: datetime) -> None:
    """Make the rows of the hosts on which these new runs will write, and say whether they must be filled before.

    A host that has the job's only copy is up to date. Any other one gets what the others have stored.
    """
    of = {run.host_id for run in runs if (run.order or {}).get("outputs")}
    if not of:
        return
    outputs = of_job(job, spec)
    if outputs is None or not outputs.on_hosts:
        return
    rows = {row.host_id: row for row in HostOutputs.objects.filter(job=job).select_for_update(no_key=True)}
    is_empty = not rows and not has_stored(job, outputs.on_hosts)
    addresses = [[address.bucket, address.path] for address in outputs.on_hosts]
    for host_id in of:
        row = rows.get(host_id)
        if row is None:
            filled = now if is_empty else None
            HostOutputs.objects.create(
                job=job, host_id=host_id, addresses=addresses, created_at=now, due_at=now, filled_at=filled
            )
        elif len(of.union(rows)) > 1 or row.dropped_at is not None:
            again(row.pk, now, addresses=addresses, filled_at=None)
        else:
            again(row.pk, now, addresses=addresses)


def again(pk: int, now: datetime, **fields: Any) -> None:
    """A run will write there once more. Whoever has claimed the row loses it."""
    HostOutputs.objects.filter(pk=pk).update(
        stage=OutputStage.WRITING,
        due_at=now,
        serial=F("serial") + 1,
        looked_at=None,
        settled_at=None,
        dropped_at=None,
        tries=0,
        pause_s=0,
        **fields,
    )


def has_stored(job: Job, addresses: Iterable[Address]) -> bool:
    """Whether anything is stored below these addresses."""
    for address in addresses:
        bucket = buckets.find(job.project, address.bucket)
        if bucket is not None and objects.list_objects(bucket, address.path, limit=1).objects:
            return True
    return False
