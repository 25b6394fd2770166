"""What a job's document names and Trainyard does not act on: fields of Vertex that are kept, and cloud storage."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agents.infra.texts import said
from jobs.rules.spec.custom_job import CustomJobSpec, Pool
from jobs.rules.spec.json_fields import camel

# Where Vertex mounts Cloud Storage in each job. A path such as /data/gcs/x is another one.
CLOUD_MOUNT = "/gcs"
_CLOUD_PATH = re.compile(r"(?<![\w./-])/gcs/")


def kept_fields(spec: CustomJobSpec) -> tuple[tuple[str, str], ...]:
    """The fields that are kept without effect, by their names in the document, with their values."""
    dashboard = [("enableDashboardAccess", "true")] if spec.enable_dashboard_access else []
    disks = [pair for number, pool in enumerate(spec.pools) if pool for pair in _disk(number, pool)]
    return (*((camel(name), text) for name, text in spec.kept), *dashboard, *disks)


def cloud_output(spec: CustomJobSpec) -> str:
    """The output directory if it is an address (gs://bucket/runs/7) and not a path on the hosts; empty otherwise."""
    return spec.base_output_directory if "://" in spec.base_output_directory else ""


def cloud_paths(spec: CustomJobSpec) -> tuple[str, ...]:
    """Where the document names a path below /gcs, in words: "the command of workerpool0"."""
    found: list[str] = (
        [said("the output directory")] if spec.base_output_directory.startswith(f"{CLOUD_MOUNT}/") else []
    )
    for number, pool in enumerate(spec.pools):
        parts = _cloud_parts(pool) if pool else ()
        found += [said("{part} of {pool}", part=part, pool=f"workerpool{number}") for part in parts]
    return tuple(found)


def _cloud_parts(pool: Pool) -> Iterator[str]:
    for what, texts in (
        (said("the command"), pool.container.command),
        (said("an argument"), pool.container.args),
    ):
        if any(_CLOUD_PATH.search(text) for text in texts):
            yield what
    for name, value in pool.container.env:
        if _CLOUD_PATH.search(value):
            yield said("the variable {name}", name=name)


def _disk(number: int, pool: Pool) -> Iterator[tuple[str, str]]:
    name = f"workerPoolSpecs[{number}].diskSpec"
    if pool.disk.boot_disk_type:
        yield f"{name}.bootDiskType", pool.disk.boot_disk_type
    if pool.disk.boot_disk_size_gb:
        yield f"{name}.bootDiskSizeGb", str(pool.disk.boot_disk_size_gb)
