"""A file that is being received: written as it comes, with its digests, and bounded in size and by the free disk.

Memory does not grow with the file. Nothing points to the file before it is whole, so a crash leaves what nobody
believes, and the sweep removes it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import google_crc32c

from agents.infra.refusals import Exhausted, Refused, Unavailable
from agents.infra.texts import said
from jobs.artifacts import file_locks, storage
from jobs.artifacts.room import Reserve, while_it_comes
from jobs.models import Project

# How often the free disk is looked at, and the file is written to disk, so that its end does not wait for all of it.
STEP_BYTES = 64 * storage.MB


@dataclass(frozen=True, slots=True)
class Digests:
    """What the bytes of a file are. `md5` is empty where nobody asked for it: it costs more than the others."""

    size: int
    sha256: str
    crc32c: str
    md5: str = ""


class Hashes:
    """The digests of bytes that come piece by piece."""

    def __init__(self, with_md5: bool = False) -> None:
        self.size = self._crc32c = 0
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False) if with_md5 else None

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self._sha256.update(data)
        self._crc32c = google_crc32c.extend(self._crc32c, data)
        if self._md5 is not None:
            self._md5.update(data)

    def digests(self) -> Digests:
        md5 = "" if self._md5 is None else base64.b64encode(self._md5.digest()).decode()
        return Digests(self.size, self._sha256.hexdigest(), crc32c_text(self._crc32c), md5)


class TooLarge(Exhausted):
    """More bytes came than may."""


class WrongDigest(Refused):
    """The bytes that came are not those that were announced."""


class Incoming:
    """One file that is being received. `finish` makes it durable and tells its digests.

    It is locked until `discard`, also while the storage takes it, which may last hours: the sweep leaves it alone.
    """

    def __init__(
        self, path: Path, most: int | None = None, with_md5: bool = False, reserve: Reserve | None = None
    ) -> None:
        self.path, self._most, self._step, self._reserve = path, most, STEP_BYTES, reserve
        self.share = ""
        self._hashes = Hashes(with_md5)
        self._file = path.open("wb", buffering=0)
        file_locks.take(self._file.fileno())

    @property
    def size(self) -> int:
        return self._hashes.size

    def write(self, data: bytes) -> None:
        if self._most is not None and self.size + len(data) > self._most:
            raise TooLarge(
                "size",
                said(
                    "More than {most} bytes came: no more fits such a request.",
                    most=self._most,
                ),
            )
        if self._reserve is not None:
            self._reserve.up_to(self.size + len(data))
        write_all(self._file, data)
        self._hashes.add(data)
        if self.size >= self._step:
            self._step = self.size + STEP_BYTES
            check_disk(0)
            os.fdatasync(self._file.fileno())

    def finish(self) -> Digests:
        os.fsync(self._file.fileno())
        return self._hashes.digests()

    def renew(self) -> None:
        """It is whole and waits to be stored: what it has reserved of the quota stays its own."""
        if self._reserve is not None:
            self._reserve.renew()

    def discard(self) -> None:
        """Close and remove it. What the storage keeps is a name of its own."""
        self._file.close()
        self.path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """What it has reserved of the quota is free again."""
        if self._reserve is not None:
            self._reserve.release()


def share_of_project(project_id: int) -> str:
    """The share of a project of the places for uploads: each share leaves places to the others."""
    return f"project {project_id}"


def share_of_person(user_id: int) -> str:
    """The share of a person, for an upload that says only in its body to which project it goes."""
    return f"person {user_id}"


def new_file(project: Project | None, most: int | None = None, with_md5: bool = False) -> Incoming:
    """A new file to receive into. `project`: whose quota its bytes take as they come."""
    path = storage.receiving_directory() / f"one-{secrets.token_hex(12)}"
    file = Incoming(path, most, with_md5, Reserve(project, path.name, while_it_comes()) if project else None)
    if project is not None:
        file.share = share_of_project(project.pk)
    return file


@contextmanager
def incoming(project: Project | None, with_md5: bool = False) -> Iterator[Incoming]:
    """As `new_file`; removed at the end, also where the storage keeps its bytes."""
    file = new_file(project, with_md5=with_md5)
    try:
        yield file
    finally:
        file.discard()


def fill(file: Incoming, chunks: Iterable[bytes]) -> Digests:
    for chunk in chunks:
        file.write(chunk)
    return file.finish()


def digests_of(path: Path, with_md5: bool = False) -> Digests:
    """The digests of a file that came in several parts."""
    hashes = Hashes(with_md5)
    with path.open("rb", buffering=0) as file:
        while piece := file.read(storage.READ_BYTES):
            hashes.add(piece)
    return hashes.digests()


def write_all(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]


def crc32c_text(value: int) -> str:
    """The checksum as Google writes it: base64 of four bytes, the highest first."""
    return base64.b64encode(value.to_bytes(4, "big")).decode()


def check_disk(more: int) -> None:
    """Raise Unavailable when so many more bytes would leave the console less free disk than its minimum."""
    if storage.free_bytes() <= more:
        raise Unavailable(
            said(
                "The disk of the console is nearly full, so nothing is stored. Ask an admin to free some of it."
            )
        )


def check_digests(found: Digests, sha256: str = "", crc32c: str = "", md5: str = "") -> None:
    """Raise WrongDigest when one that was announced is another one. An empty one was not announced."""
    for field, wanted, came in (
        ("sha256", sha256, found.sha256),
        ("crc32c", crc32c, found.crc32c),
        ("md5Hash", md5, found.md5),
    ):
        if wanted and wanted != came:
            raise WrongDigest(
                field,
                said(
                    "The bytes that came have {field} {came}, and {wanted} was announced. Nothing was stored: send "
                    "them again.",
                    field=field,
                    came=came or "-",
                    wanted=wanted[:80],
                ),
            )
