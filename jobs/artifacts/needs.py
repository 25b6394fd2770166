"""Which objects the jobs of a project need that are not over: they do not end by their age.

A job needs what it has written, what was put onto its hosts, and all that lies in its output directory: while it waits,
its checkpoints are nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from django.db.models import QuerySet

from jobs.models import Bucket, Job, OutputFile, StoredObject
from jobs.rules.lifecycle.states import TERMINAL
from jobs.rules.spec.output_addresses import base_address, is_below

# What is noted of an object that a job has written (jobs/outputs/uploading.py).
WRITER = "job"
JOB_ID = re.compile("[1-8][0-9]{0,18}")


def of_jobs(bucket: Bucket, rows: Sequence[StoredObject]) -> set[int]:
    """The keys of those among these objects of the bucket."""
    jobs = Job.every.filter(project=bucket.project_id).exclude(state__in=TERMINAL)
    written, on_hosts, bases = _writers(jobs, rows), _on_hosts(bucket, jobs, rows), _bases(bucket, jobs)
    return {
        row.pk
        for row in rows
        if _writer(row) in written
        or row.generation in on_hosts.get(f"{bucket.name}/{row.name}", ())
        or any(is_below(row.name, path) for path in bases)
    }


def _writers(jobs: QuerySet[Job], rows: Sequence[StoredObject]) -> set[str]:
    """The jobs that have written some of these objects, as it is noted there. Anybody may note anything."""
    noted = {_writer(row) for row in rows}
    ids = [int(each) for each in noted if JOB_ID.fullmatch(each)]
    return {str(pk) for pk in jobs.filter(pk__in=ids).values_list("pk", flat=True)}


def _writer(row: StoredObject) -> str:
    return str(row.metadata.get(WRITER, ""))


def _on_hosts(bucket: Bucket, jobs: QuerySet[Job], rows: Sequence[StoredObject]) -> dict[str, set[int]]:
    """By path, the generations that hosts of the jobs have."""
    paths = [f"{bucket.name}/{row.name}" for row in rows]
    found: dict[str, set[int]] = {}
    files = OutputFile.objects.filter(outputs__job__in=jobs, path__in=paths).exclude(stored_at=None)
    for path, generation in files.values_list("path", "generation"):
        found.setdefault(path, set()).add(generation)
    return found


def _bases(bucket: Bucket, jobs: QuerySet[Job]) -> set[str]:
    """The output directories of the jobs that lie in the bucket."""
    texts = jobs.order_by().values_list("spec__baseOutputDirectory__outputUriPrefix", flat=True).distinct()
    found = {base_address(text) for text in texts if text}
    return {each.path for each in found if each is not None and each.bucket == bucket.name}
