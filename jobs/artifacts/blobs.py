"""Blobs: the bytes of a project, each kept once, and removed when nothing has pointed to them for an hour.

The order makes every crash harmless. The file is written first, durably, under a new name. Then one transaction adds
the row and what points to it. A file without a row is an orphan, which is swept; a row never lacks its file, because
the row is deleted first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from agents.infra import clock, database_pool
from agents.infra.refusals import Refused, Unavailable
from agents.infra.texts import said
from jobs.artifacts import room, storage
from jobs.artifacts.incoming import Digests, check_disk
from jobs.models import Artifact, Blob, BlobHold, Job, Project, StoredObject

# How long a blob is kept that nothing points to.
KEPT = timedelta(hours=1)
BATCH = 500


@contextmanager
def kept(project: Project, received: Path, found: Digests, now: datetime) -> Iterator[Blob]:
    """The blob of a complete file, inside the transaction that adds it. In it the caller adds what points to the blob.

    Called outside of a transaction: a remote storage may take minutes. Raises Exhausted when the quota is full.
    """
    key = ""
    # A blob that was touched is not swept within the hour.
    if not Blob.objects.filter(project=project, sha256=found.sha256).update(touched_at=now):
        room.check(project, found.size, received.name)
        key = storage.new_key(project.pk, found.sha256)
        # To a storage elsewhere it may take hours.
        with room.kept(received.name):
            database_pool.give_back()
            storage.keep(received, key)
    try:
        with transaction.atomic():
            blob = _row(project, found, key, now, received.name)
            yield blob
            # What was reserved is stored now.
            room.release(received.name)
    except Refused:
        if key:
            _drop(key)
        raise
    # After any other problem the rows may have been committed though nobody was told. The sweep asks the database.
    if key and blob.key != key:
        _drop(key)


def _drop(key: str) -> None:
    """Remove a file that no row points to. Where the storage does not answer now, the sweep removes it."""
    with suppress(Unavailable):
        storage.remove(key)


def _row(project: Project, found: Digests, key: str, now: datetime, received: str) -> Blob:
    """The row of these bytes, locked. Two uploads of the same bytes meet at the lock of the project."""
    room.lock(project.pk)
    same = Blob.objects.select_for_update(no_key=True).filter(project=project, sha256=found.sha256).first()
    if same is not None:
        same.touched_at = now
        same.md5 = same.md5 or found.md5
        same.save(update_fields=["touched_at", "md5"])
        return same
    room.check(project, found.size, received)
    return Blob.objects.create(
        project=project,
        sha256=found.sha256,
        size=found.size,
        crc32c=found.crc32c,
        md5=found.md5,
        key=key,
        touched_at=now,
    )


def check_announced(project: Project, size: int) -> None:
    """Raise Exhausted or Unavailable before bytes come that could not be stored."""
    room.check(project, size)
    check_disk(size)


def read(blob: Blob, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """The bytes [start, end), in pieces. Raises BytesMissing before the first of them."""
    database_pool.give_back()
    storage.check_there(blob.key)
    return storage.read(blob.key, start, blob.size if end is None else min(end, blob.size))


def hold(blob: Blob, job: Job) -> None:
    """Keep the blob until the job is deleted. In the caller's transaction. Raises Refused when it is gone."""
    if not Blob.objects.select_for_update(no_key=True).filter(pk=blob.pk, project=job.project_id).exists():
        raise Refused("artifact", said("The file that the job needs was deleted. Upload it again."))
    BlobHold.objects.get_or_create(blob=blob, job=job)


def release(blob: Blob, now: datetime) -> None:
    """Note that something has ceased to point to the blob: it is kept for another hour at least."""
    Blob.objects.filter(pk=blob.pk).update(touched_at=now)


def sweep(now: datetime) -> tuple[int, bool]:
    """Remove the blobs that nothing has pointed to for an hour, for some seconds: jobs wait for the rest of the sweep.

    Returns how many were removed, and whether these were all."""
    until = clock.elapsed() + storage.SWEEP_S
    removed = 0
    for pk in _unused_rows(now):
        if clock.elapsed() >= until:
            return removed, False
        key = _drop_row(pk, now)
        if key:
            storage.remove(key)
            removed += 1
    return removed, True


def _unused_rows(now: datetime) -> Iterator[int]:
    last = 0
    while batch := list(_unused(now).filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:BATCH]):
        yield from batch
        last = batch[-1]


def _drop_row(pk: int, now: datetime) -> str:
    """Returns the name of its file, empty where it has come to be needed."""
    with transaction.atomic():
        # What points to a row locks it: whoever did so meanwhile is seen by the second look.
        skip = connection.features.has_select_for_update_skip_locked
        row = Blob.objects.select_for_update(skip_locked=skip).filter(pk=pk).first()
        if row is None or not _unused(now).filter(pk=pk).exists():
            return ""
        row.delete()
    return row.key


def _unused(now: datetime) -> QuerySet[Blob]:
    held = BlobHold.objects.filter(blob=OuterRef("pk"), job__deleted_at=None)
    return Blob.objects.filter(
        ~Q(Exists(StoredObject.objects.filter(blob=OuterRef("pk")))),
        ~Q(Exists(Artifact.objects.filter(blob=OuterRef("pk")))),
        ~Q(Exists(held)),
        touched_at__lte=now - KEPT,
    )
