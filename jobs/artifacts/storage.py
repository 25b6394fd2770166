"""The files of blobs: Django's Storage `artifacts`, a directory (directory_files.py) or S3 (s3_files.py).

A file is written whole, under a name that no other file ever has, before a row points to it. Files that are still
being received are in the directory `uploads` of the data directory, whatever the Storage is.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast

from django.conf import settings
from django.core.files.storage import storages

from agents.infra.refusals import Unavailable
from agents.infra.texts import said

MB = 1024 * 1024
READ_BYTES = MB
# For how long the sweep removes files at a time. Afterwards one of them may still take what a storage needs for it.
SWEEP_S = 10.0
# The files of uploads that go over several requests begin so.
UPLOAD_PREFIX = "upload-"
# A file that a remote storage has received a part of: its key there, and the storage's name for it.
Part = tuple[str, str]


class BytesMissing(Unavailable):
    """The file of a blob is not in the storage, though its row is in the database."""

    def __init__(self) -> None:
        super().__init__(
            said(
                "The bytes of this file are missing in the storage of the console. Ask an admin for the backup."
            )
        )


class NotReached(Unavailable):
    """The storage is elsewhere and does not answer, or refuses. The log says why."""

    def __init__(self) -> None:
        super().__init__(
            said(
                "The storage of the console cannot be reached at this moment. Try again, or ask an admin: the log of "
                "the console says why."
            )
        )


class Files(Protocol):
    """What the Storage `artifacts` can do: directory_files.py and s3_files.py."""

    def keep(self, path: Path, key: str) -> None: ...

    def is_coming(self, key: str) -> bool: ...

    def delete(self, name: str) -> None: ...

    def exists(self, name: str) -> bool: ...

    def pieces(self, key: str, start: int, end: int) -> Iterator[bytes]: ...

    def keys(self) -> Iterator[str]: ...

    def parts(self) -> Iterator[Part]: ...

    def abandon(self, part: Part) -> None: ...

    def problem(self) -> str: ...


def store() -> Files:
    return cast(Files, storages["artifacts"])


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
    store().keep(path, key)


def remove(key: str) -> None:
    store().delete(key)


def exists(key: str) -> bool:
    return store().exists(key)


def is_coming(key: str) -> bool:
    """Whether a file of this name is being written at this moment, by any process."""
    return store().is_coming(key)


def check_there(key: str) -> None:
    """Raise BytesMissing before an answer has begun."""
    if not exists(key):
        raise BytesMissing


def read(key: str, start: int, end: int) -> Iterator[bytes]:
    """The bytes [start, end) of a file, in pieces."""
    return store().pieces(key, start, end)


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
    return store().keys()


def parts() -> Iterator[Part]:
    """Yield what was begun to be stored in a remote storage and is not complete."""
    return store().parts()


def abandon(part: Part) -> None:
    store().abandon(part)


def problem() -> str:
    """Why the storage cannot be used now, with the cure; empty where it can."""
    return store().problem()
