"""Which directories the hosts of a location share: for one bucket, or with a directory for each bucket in it.

The caller has asked whether the person may do it. Runs that have their order keep it. Each change is audited.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from agents.infra.refusals import Refused
from agents.infra.texts import said
from agents.models import Location
from jobs.models import LocationStorage
from jobs.projects import audit
from jobs.rules import storage_names

# The name under which the directory of all other buckets is given.
EVERY = "*"
MAX_ROWS, MAX_DIRECTORY = 100, 500


def directories(location: Location) -> dict[str, str]:
    """By bucket, EVERY for all others."""
    rows = LocationStorage.objects.filter(location=location).order_by("bucket")
    return {bucket or EVERY: directory for bucket, directory in rows.values_list("bucket", "directory")}


def share(location: Location, asked: Mapping[str, str], actor: str, now: datetime) -> None:
    """Let the location share these directories and no others."""
    wanted = {bucket: _checked(bucket, directory) for bucket, directory in sorted(asked.items())}
    if len(wanted) > MAX_ROWS:
        raise Refused("storage", said("A location shares at most {most} directories.", most=MAX_ROWS))
    with transaction.atomic():
        Location.objects.select_for_update().get(pk=location.pk)
        before = directories(location)
        if wanted == before:
            return
        LocationStorage.objects.filter(location=location).delete()
        LocationStorage.objects.bulk_create(
            LocationStorage(location=location, bucket="" if bucket == EVERY else bucket, directory=directory)
            for bucket, directory in wanted.items()
        )
        audit.record(actor, "location.storage", "location", location.name, before, wanted, now)


def parse_lines(text: str) -> dict[str, str]:
    """What a person typed: a line for each, `bucket /directory`, or `* /directory` for all other buckets."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        bucket, _, directory = line.strip().partition(" ")
        if bucket in found:
            raise Refused("storage", said("{bucket} is given twice.", bucket=bucket[:80]))
        if bucket:
            found[bucket] = directory.strip()
    return found


def _checked(bucket: str, directory: str) -> str:
    if bucket != EVERY and (problem := storage_names.bucket_problem(bucket)):
        raise Refused("storage", problem)
    path = directory.rstrip("/")
    parts = path.split("/")[1:]
    if not path.startswith("/") or {"", ".", ".."} & set(parts) or not path.isprintable():
        raise Refused(
            "storage",
            said(
                "{bucket} needs the path of a directory that all hosts share, such as /data/{example}.",
                bucket=bucket,
                example=bucket if bucket != EVERY else "buckets",
            ),
        )
    if len(path) > MAX_DIRECTORY:
        raise Refused("storage", said("A path has at most {most} characters.", most=MAX_DIRECTORY))
    return path
