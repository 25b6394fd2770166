"""Fields of Vertex in a job's document that are kept, and that Trainyard does not act on."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.rules.spec.custom_job import CustomJobSpec, Pool
from jobs.rules.spec.json_fields import camel


def kept_fields(spec: CustomJobSpec) -> tuple[tuple[str, str], ...]:
    """The fields that are kept without effect, by their names in the document, with their values."""
    dashboard = [("enableDashboardAccess", "true")] if spec.enable_dashboard_access else []
    disks = [pair for number, pool in enumerate(spec.pools) if pool for pair in _disk(number, pool)]
    return (*((camel(name), text) for name, text in spec.kept), *dashboard, *disks)


def _disk(number: int, pool: Pool) -> Iterator[tuple[str, str]]:
    name = f"workerPoolSpecs[{number}].diskSpec"
    if pool.disk.boot_disk_type:
        yield f"{name}.bootDiskType", pool.disk.boot_disk_type
    if pool.disk.boot_disk_size_gb:
        yield f"{name}.bootDiskSizeGb", str(pool.disk.boot_disk_size_gb)
