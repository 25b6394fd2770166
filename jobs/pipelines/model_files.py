"""Where the files of a model are, and whether the training wrote any."""

from __future__ import annotations

from jobs.artifacts import buckets, objects
from jobs.models import Job, OutputFile
from jobs.outputs import ordering, state
from jobs.rules.spec.cluster_variables import model_directory
from jobs.rules.spec.output_addresses import base_address


def directory_of(job: Job) -> str:
    """The AIP_MODEL_DIR of the job as its document names it, without a slash at its end."""
    base = str((job.spec.get("baseOutputDirectory") or {}).get("outputUriPrefix", ""))
    return model_directory(base).rstrip("/")


def is_known_to_be_empty(job: Job) -> bool:
    """Whether nothing is in the model directory of a job that is over, as far as this console can know.

    It knows nothing of a directory of hosts, and not all while files lie on a host that are not stored: these may be
    the model. An object that has the name of the directory itself is one that programs make for an empty folder.
    """
    address = base_address(directory_of(job))
    if address is None or ordering.shared_directories(job.project, job.location_name, [address.bucket]):
        return False
    left = OutputFile.objects.filter(outputs__job=job, stored_at=None, gone_at=None)
    if left.exists() or state.left_on_hosts([job.pk]):
        return False
    prefix = f"{address.path}/"
    # What the job wrote may have been moved or deleted since it was stored.
    wrote = OutputFile.objects.filter(
        outputs__job=job, gone_at=None, path__startswith=f"{address.bucket}/{prefix}"
    )
    if wrote.exists():
        return False
    bucket = buckets.find(job.project, address.bucket)
    if bucket is None:
        return True
    return not any(found.name != prefix for found in objects.list_objects(bucket, prefix, limit=2).objects)
