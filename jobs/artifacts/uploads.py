"""Uploads that go on where they broke off: a row, and a file that grows with each request.

What the file has is what was received: after a crash it may be more than any request was told, never less. The digests
of the whole are compared at the end, so a file that a power cut has damaged becomes no object.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import FileIO
from pathlib import Path

from django.contrib.auth.models import User
from django.db import transaction

from agents import time_doubt
from agents.infra.refusals import Exhausted, Refused, Unavailable
from agents.infra.texts import said
from jobs.artifacts import blobs, file_locks, incoming, objects, room, storage
from jobs.artifacts.file_locks import Lock
from jobs.artifacts.incoming import Digests, Hashes, TooLarge, share_of_project
from jobs.artifacts.objects import About
from jobs.artifacts.room import Reserve
from jobs.models import Bucket, StoredObject, Upload

# As Google's: an upload that has not ended in a week is forgotten.
LIFE = timedelta(days=7)
# Each project may have so many at a time.
MAX_OPEN = 200
# A received file that no row explains, and that has not grown for so long, is removed.
IDLE_S = 3600.0
# The same where the file system has no locks: it may be on its way to a storage elsewhere for so long.
IDLE_UNLOCKED_S = 86400.0
# The files of the directory that this process has seen, by name: their size and when they last had grown.
_seen: dict[str, tuple[int, float]] = {}


class OutOfOrder(Refused):
    """The bytes do not begin where the upload has stopped. `size`: how many there are."""

    def __init__(self, size: int) -> None:
        super().__init__("Content-Range", said("The upload has {size} bytes: send the next ones.", size=size))
        self.size = size


@dataclass(frozen=True, slots=True)
class Announced:
    """What the sender says of the whole: its size and digests, where it knows them."""

    size: int | None = None
    crc32c: str = ""
    md5: str = ""


class Part:
    """The bytes of one request of an upload, appended to its file. Only one request appends at a time."""

    def __init__(self, upload: Upload, start: int, most: int | None) -> None:
        self.share = share_of_project(upload.bucket.project_id)
        self._file = FileIO(path_of(upload), "ab+")
        try:
            self._lock()
            self.size = os.fstat(self._file.fileno()).st_size
            if start > self.size:
                raise OutOfOrder(self.size)
        except BaseException:
            self._file.close()
            raise
        # Bytes that came before are not taken again: the answer to them was lost.
        self._known, self._most = self.size - start, most
        # What was announced is reserved.
        self._reserve = (
            Reserve(upload.bucket.project, path_of(upload).name, LIFE, 0) if upload.size is None else None
        )
        self._hashes = Hashes(bool(upload.md5)) if self.size == 0 else None
        self._step = self.size + incoming.STEP_BYTES

    def _lock(self) -> None:
        if file_locks.take(self._file.fileno()) is Lock.HELD:
            # Google's client tries again after a 503, but not after a 409.
            raise Unavailable(said("Another request is sending bytes of this upload. Try again."))

    def write(self, data: bytes) -> None:
        known = min(self._known, len(data))
        self._known -= known
        data = data[known:]
        if self._most is not None and self.size + len(data) > self._most:
            raise TooLarge(
                "size",
                said("More than {most} bytes came: no more were announced.", most=self._most),
            )
        if self._reserve is not None:
            self._reserve.up_to(self.size + len(data))
        incoming.write_all(self._file, data)
        self.size += len(data)
        if self._hashes is not None:
            self._hashes.add(data)
        if self.size >= self._step:
            self._step = self.size + incoming.STEP_BYTES
            incoming.check_disk(0)
            os.fdatasync(self._file.fileno())

    def finish(self, with_md5: bool = False) -> Digests:
        """The digests of the whole file, which is durable then. The lock is kept: nothing is appended any more."""
        os.fsync(self._file.fileno())
        if self._hashes is not None:
            return self._hashes.digests()
        return incoming.digests_of(Path(str(self._file.name)), with_md5)

    def sync(self) -> None:
        """Make durable what the sender is told of."""
        os.fsync(self._file.fileno())

    def renew(self) -> None:
        """What was reserved of the quota lasts as long as the upload."""

    def discard(self) -> None:
        """Close the file. What was received stays for the next request."""
        self._file.close()
        if self._reserve is not None:
            self._reserve.trim(self.size)


def begin(
    bucket: Bucket, name: str, about: About, announced: Announced, by: User, now: datetime
) -> tuple[Upload, str]:
    """A new upload, and the secret key in its address. In the caller's transaction. Raises Refused, Exhausted."""
    objects.check(bucket, name, about)
    room.lock(bucket.project_id)
    blobs.check_announced(bucket.project, announced.size or 0)
    if Upload.objects.filter(bucket__project=bucket.project_id, stored=None).count() >= MAX_OPEN:
        raise Exhausted(
            "name", said("{number} uploads have not ended yet. End or cancel one.", number=MAX_OPEN)
        )
    key = secrets.token_urlsafe(32)
    hashed = hashlib.sha256(key.encode()).hexdigest()
    if announced.size:
        room.reserve(bucket.project, storage.upload_path(hashed).name, announced.size, LIFE)
    row = Upload.objects.create(
        key=hashed,
        bucket=bucket,
        name=name,
        content_type=about.content_type,
        metadata=dict(about.metadata),
        headers=dict(about.headers),
        size=announced.size,
        crc32c=announced.crc32c,
        md5=announced.md5,
        if_generation=about.if_generation,
        created_by=by,
        created_at=now,
    )
    return row, key


def find(key: str) -> Upload | None:
    """The upload with this key in its address."""
    rows = Upload.objects.filter(key=hashlib.sha256(key.encode("utf-8", "replace")).hexdigest())
    return rows.select_related("bucket__project", "created_by", "stored__blob", "stored__bucket").first()


def path_of(upload: Upload) -> Path:
    return storage.upload_path(upload.key)


def received(upload: Upload) -> int:
    """How many bytes there are. They are durable when this returns: the sender forgets them."""
    path = path_of(upload)
    if not path.exists():
        return 0
    storage.sync(path)
    return path.stat().st_size


def announce(upload: Upload, total: int) -> None:
    """Note the size of the whole, which the sender has named only now. In the caller's transaction. From now on it
    counts in the quota of the project. Raises Exhausted."""
    room.reserve(upload.bucket.project, path_of(upload).name, total, LIFE)
    Upload.objects.filter(pk=upload.pk, size=None).update(size=total)
    upload.size = total


def most(upload: Upload) -> int | None:
    """How many bytes the upload may have in all; None where only the quota and the disk limit it."""
    return upload.size


def complete(upload: Upload, part: Part, now: datetime) -> StoredObject:
    """Make the object. Raises WrongDigest, Changed or Exhausted; then the upload is over, and its bytes are removed."""
    about = About(upload.content_type, upload.metadata, upload.headers, upload.if_generation)
    path = path_of(upload)
    try:
        found = part.finish(bool(upload.md5))
        incoming.check_digests(found, crc32c=upload.crc32c, md5=upload.md5)
        return objects.add_file(
            upload.bucket, upload.name, path, found, about, upload.created_by.username, now, upload
        )
    except Refused:
        cancel(upload)
        raise
    finally:
        part.discard()
        # It has ended, or was forgotten after a week: nobody goes on with it.
        if not Upload.objects.filter(pk=upload.pk, stored=None).exists():
            path.unlink(missing_ok=True)


def cancel(upload: Upload) -> None:
    Upload.objects.filter(pk=upload.pk).delete()
    room.release(path_of(upload).name)
    path_of(upload).unlink(missing_ok=True)


def sweep(now: datetime, elapsed: float) -> int:
    """Forget uploads that have not ended in a week, and remove received files that nothing explains and that do not
    grow. Returns how many files were removed."""
    with transaction.atomic():
        if not time_doubt.why(now):
            Upload.objects.filter(created_at__lte=now - LIFE).delete()
        room.sweep(now)
    removed = 0
    files = {path.name: path for path in storage.receiving_directory().iterdir()}
    for name in _seen.keys() - files.keys():
        del _seen[name]
    for name, path in files.items():
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            continue
        if _seen.get(name, (-1, 0.0))[0] != size:
            _seen[name] = (size, elapsed)
        elif (idle_s := elapsed - _seen[name][1]) >= IDLE_S and not _is_of_upload(name):
            removed += _remove_unlocked(path, idle_s)
    return removed


def _remove_unlocked(path: Path, idle_s: float) -> bool:
    """Remove the file of a receiver that has died. One that lives holds its lock, also while it sends the file on."""
    with suppress(FileNotFoundError), FileIO(path, "rb+") as file:
        lock = file_locks.take(file.fileno())
        if lock is Lock.TAKEN or (lock is Lock.NONE and idle_s >= IDLE_UNLOCKED_S):
            path.unlink(missing_ok=True)
            return True
    return False


def _is_of_upload(name: str) -> bool:
    return (
        name.startswith(storage.UPLOAD_PREFIX)
        and Upload.objects.filter(key=name.removeprefix(storage.UPLOAD_PREFIX), stored=None).exists()
    )
