"""The files of blobs: Django's Storage `artifacts`, a directory unless the settings name another one.

A file is written whole, under a name that no other file ever has, before a row points to it. Files that are still
being received are in the directory `uploads` of the data directory, whatever the Storage is.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.core.files import File
from django.core.files.storage import Storage, storages

from agents.infra.refusals import Unavailable
from agents.infra.texts import said

MB = 1024 * 1024
READ_BYTES = MB
# The files of uploads that go over several requests begin so.
UPLOAD_PREFIX = "upload-"


class BytesMissing(Unavailable):
    """The file of a blob is not in the storage, though its row is in the database."""

    def __init__(self) -> None:
        super().__init__(
            said(
                "The bytes of this file are missing in the storage of the console. Ask an admin for the backup."
            )
        )


def store() -> Storage:
    return storages["artifacts"]


def receiving_directory() -> Path:
    """Where uploads are received. It is on the disk of the data directory, so that a whole file is not copied."""
    path = settings.TRAINYARD.data / "uploads"
    path.mkdir(mode=0o700, exist_ok=True)
    return Path(path)


def upload_path(key: str) -> Path:
    """Where an upload of several requests is received. `key`: as its row has it."""
    return receiving_directory() / f"{UPLOAD_PREFIX}{key}"


def new_key(project: int, sha256: str) -> str:
    return f"{project}/{sha256[:2]}/{sha256}-{secrets.token_hex(6)}"


def keep(path: Path, key: str) -> None:
    """Put a complete, synced file into the storage under this new name. Durable when it returns.

    The file stays where it was received too, until rows point to the new name: the caller removes it then.
    """
    target = local_path(key)
    if target is None:
        with path.open("rb") as file:
            name = store().save(key, File(file))
        if name != key:
            store().delete(name)
            raise OSError(f"The storage would not keep a file under the name {key}.")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, target)
    except OSError:
        # The directory is a mount of its own, or its file system has no links.
        shutil.copyfile(path, target)
        sync(target)
    # The directories of the project and of the digest may be new too: each is an entry in the one above it.
    for above in list(target.parents)[: key.count("/") + 1]:
        sync(above)


def remove(key: str) -> None:
    store().delete(key)


def check_there(key: str) -> None:
    """Raise BytesMissing before an answer has begun."""
    if not store().exists(key):
        raise BytesMissing


def read(key: str, start: int, end: int) -> Iterator[bytes]:
    """The bytes [start, end) of a file, in pieces."""
    try:
        file = store().open(key, "rb")
    except FileNotFoundError as problem:
        raise BytesMissing from problem
    with file:
        file.seek(start)
        while start < end:
            piece = file.read(min(READ_BYTES, end - start))
            if not piece:
                raise BytesMissing
            start += len(piece)
            yield piece


def local_path(key: str) -> Path | None:
    """The path of a file; None for a remote Storage, whose `save` is durable when it returns."""
    try:
        return Path(store().path(key))
    except NotImplementedError:
        return None


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def free_bytes() -> int:
    """How much may still be received before the console has less free disk than its minimum; 0 if that is unknown."""
    try:
        free = shutil.disk_usage(settings.TRAINYARD.data).free
    except OSError:
        return 0
    return max(int(free - settings.TRAINYARD.min_free_mb * MB), 0)


def files() -> Iterator[str]:
    """Yield the key of every stored file."""
    for project in _folders(""):
        for digest in _folders(project):
            folder = f"{project}/{digest}"
            for name in store().listdir(folder)[1]:
                yield f"{folder}/{name}"


def _folders(above: str) -> list[str]:
    try:
        found, _ = store().listdir(above)
    except FileNotFoundError:
        return []
    return list(found)
