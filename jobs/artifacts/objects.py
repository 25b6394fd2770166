"""Objects: blobs under names in buckets, as Google's storage has them. Replacing one makes a new generation of it.

The caller has checked the permission. Storing is done outside of a transaction, because bytes come as slowly as their
sender sends; the other functions are in the caller's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from django.db import transaction
from django.utils import timezone

from agents.infra.refusals import Refused
from agents.infra.texts import said
from jobs.artifacts import blobs, buckets, incoming, room
from jobs.artifacts.incoming import Digests
from jobs.models import Blob, Bucket, Project, StoredObject, Upload
from jobs.projects import audit
from jobs.rules import storage_names

KIND = "object"
MAX_METADATA_BYTES = 8192
USUAL_TYPE = "application/octet-stream"
HEADERS = frozenset({"cacheControl", "contentDisposition", "contentEncoding", "contentLanguage"})
HEADER_TEXT = re.compile(r"[\x20-\x7e]{0,255}")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NoSuchBucket(Refused):
    """The project has no bucket of this name."""


class Changed(Refused):
    """The object is not, or not any more, in the generation that the caller named."""


@dataclass(frozen=True, slots=True)
class About:
    """What a writer says of an object besides its bytes. `if_generation`: 0 where there may be none yet."""

    content_type: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    if_generation: int | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of a list: objects and, with a delimiter, the beginnings that other objects share."""

    objects: list[StoredObject]
    prefixes: list[str]
    next_position: bytes = b""


def put_object(
    project: Project,
    bucket: str,
    name: str,
    chunks: Iterable[bytes],
    content_type: str = "",
    metadata: Mapping[str, str] | None = None,
    by: str = "",
    check_found: Callable[[Digests], None] = lambda found: None,
) -> StoredObject:
    """Store these bytes under this name, instead of what it had. Memory does not grow with them.

    `check_found` raises where the bytes that came are not those that are to be stored.
    """
    row = buckets.find(project, bucket)
    if row is None:
        raise NoSuchBucket(
            "bucket", said("Project {project} has no bucket {name}.", project=project.name, name=bucket)
        )
    about = About(content_type, metadata or {})
    check(row, name, about)
    with incoming.incoming(project) as file:
        found = incoming.fill(file, chunks)
        check_found(found)
        return add_file(row, name, file.path, found, about, by, timezone.now())


def check(bucket: Bucket, name: str, about: About) -> None:
    """Raise Refused when no such object may be stored, whatever its bytes are."""
    problem = storage_names.object_problem(name)
    if problem:
        raise Refused("name", problem)
    if bucket.project.archived_at is not None:
        raise Refused(
            "project", said("Project {name} is archived: it stores nothing new.", name=bucket.project.name)
        )
    texts = [*about.metadata.items(), *about.headers.items()]
    if sum(len(key.encode()) + len(value.encode()) for key, value in texts) > MAX_METADATA_BYTES:
        raise Refused(
            "metadata",
            said("The metadata of an object may have at most {most} bytes.", most=MAX_METADATA_BYTES),
        )
    if not HEADER_TEXT.fullmatch(about.content_type):
        raise Refused("contentType", said("contentType must be at most 255 printable characters of ASCII."))
    if not HEADER_TEXT.fullmatch(about.headers.get("contentEncoding", "")):
        raise Refused(
            "contentEncoding", said("contentEncoding must be at most 255 printable characters of ASCII.")
        )


def add_file(
    bucket: Bucket,
    name: str,
    path: Path,
    found: Digests,
    about: About,
    by: str,
    now: datetime,
    upload: Upload | None = None,
) -> StoredObject:
    """Store a complete file, whose digests are known. Raises Changed, or Exhausted when the quota is full."""
    with blobs.kept(bucket.project, path, found, now) as blob:
        row = point(bucket, name, blob, about, by, now)
        if upload is not None:
            Upload.objects.filter(pk=upload.pk).update(stored=row)
    return row


def point(bucket: Bucket, name: str, blob: Blob, about: About, by: str, now: datetime) -> StoredObject:
    """Let the name mean this blob. In the transaction, and under the lock of the project, that `blobs.kept` has."""
    before = StoredObject.objects.filter(bucket=bucket, path=name.encode()).first()
    generation = before.generation if before else 0
    if about.if_generation not in (None, generation):
        raise changed(name, generation)
    columns = {
        "generation": max(
            (now - EPOCH).microseconds + int((now - EPOCH).total_seconds()) * 10**6, generation + 1
        ),
        "metageneration": 1,
        "blob": blob,
        "content_type": about.content_type or USUAL_TYPE,
        "metadata": dict(about.metadata),
        "headers": dict(about.headers),
        "created_at": now,
        "updated_at": now,
        "created_by": by[:150],
    }
    row, _ = StoredObject.objects.update_or_create(
        bucket=bucket, path=name.encode(), name=name, defaults=columns
    )
    if before is not None and before.blob_id != blob.pk:
        blobs.release(before.blob, now)
    return row


def changed(name: str, generation: int) -> Changed:
    if not generation:
        return Changed("ifGenerationMatch", said("There is no object {name}.", name=name))
    return Changed(
        "ifGenerationMatch",
        said("Object {name} is in generation {generation}.", name=name, generation=generation),
    )


def find_object(project: Project, uri: str) -> StoredObject | None:
    """The object of this project at `gs://bucket/name`; None if there is none, or it is another project's."""
    address = storage_names.address_of(uri)
    if address is None or not address.name:
        return None
    rows = StoredObject.objects.filter(bucket__project=project, bucket__name=address.bucket)
    return rows.filter(path=address.name.encode()).select_related("blob", "bucket__project").first()


def in_bucket(bucket: Bucket, name: str) -> StoredObject | None:
    rows = StoredObject.objects.filter(bucket=bucket, path=name.encode("utf-8", "surrogatepass"))
    return rows.select_related("blob", "bucket__project").first()


def open_object(row: StoredObject, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """The bytes [start, end) of an object, in pieces."""
    return blobs.read(row.blob, start, end)


def delete_object(row: StoredObject, by: str, now: datetime) -> None:
    """Delete an object, and record who did."""
    with transaction.atomic():
        if remove(row, now):
            audit.record(by, "object.delete", KIND, str(row), row.blob.sha256, None, now, row.bucket.project)


def remove(row: StoredObject, now: datetime) -> bool:
    """Delete an object in this generation: one that has replaced it meanwhile stays. Its bytes stay while an artifact,
    another object or a job needs them. The caller records it. Returns whether it was there."""
    with transaction.atomic():
        room.lock(row.bucket.project_id)
        same = StoredObject.objects.filter(pk=row.pk, generation=row.generation)
        if not same.exists():
            return False
        blobs.release(row.blob, now)
        Upload.objects.filter(stored=row).delete()
        same.delete()
        return True


def list_objects(
    bucket: Bucket, prefix: str = "", delimiter: str = "", position: bytes = b"", limit: int = 1000
) -> Listing:
    """The objects whose names begin with `prefix`, in the order of their bytes, from `position` on.

    With a delimiter, those that have it after the prefix are not listed, but what they have up to there, once.
    """
    first = prefix.encode()
    at = max(first, position)
    found: list[bytes] = []
    shared: list[str] = []
    while True:
        left = limit - len(found) - len(shared)
        rows = _names_from(bucket, first, at, left + 1)
        for name in rows:
            if name.encode() < at:
                # It begins with what was listed as shared.
                continue
            if len(found) + len(shared) == limit:
                return Listing(_rows(bucket, found), shared, at)
            cut = name.find(delimiter, len(prefix)) if delimiter else -1
            if cut < 0:
                found.append(name.encode())
                at = found[-1] + b"\0"
            else:
                shared.append(name[: cut + len(delimiter)])
                at = storage_names.after_prefix(shared[-1].encode())
        if len(rows) <= left:
            return Listing(_rows(bucket, found), shared)


def _names_from(bucket: Bucket, prefix: bytes, at: bytes, limit: int) -> list[str]:
    """Names only: of a folder with many objects, most are read to be skipped."""
    rows = StoredObject.objects.filter(bucket=bucket, path__gte=at)
    if prefix:
        rows = rows.filter(path__lt=storage_names.after_prefix(prefix))
    return list(rows.order_by("path").values_list("name", flat=True)[:limit])


def _rows(bucket: Bucket, paths: Sequence[bytes]) -> list[StoredObject]:
    """By their names: one that is written again meanwhile is another row, and is still there."""
    found = list(
        StoredObject.objects.filter(bucket=bucket, path__in=paths).select_related("blob").order_by("path")
    )
    for row in found:
        row.bucket = bucket
    return found
