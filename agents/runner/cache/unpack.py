"""Unpacking an archive that a user brought, as the job's user, into a directory of its own.

Only files, directories, and links that stay inside are made; everything else refuses the whole archive. Links are made
last, so nothing is ever written through one.
"""

from __future__ import annotations

import os
import posixpath
from typing import BinaryIO, Callable, Dict, List, NamedTuple, Set

from agents.runner.cache.archives import (
    BLOCK,
    DIRECTORY,
    FILE,
    HARD_LINK,
    LINK,
    BadArchive,
    Entry,
    entries,
    in_words,
)
from agents.runner.files import free_bytes, kept_free

MAX_NAME, MAX_PATH, MAX_DEPTH = 255, 2048, 64

Report = Callable[[int, int], None]


class Limits(NamedTuple):
    """What an archive may become. The ratio counts only above `ratio_from` bytes: small files pack well."""

    size: int = 200 << 30
    entries: int = 500_000
    ratio: int = 200
    ratio_from: int = 256 << 20


LIMITS = Limits()


class DiskFull(Exception):
    """There is no room for what the archive holds."""


def unpack(
    file: BinaryIO, into: str, limits: Limits = LIMITS, report: Report = lambda done, total: None
) -> None:
    """Unpack into the empty directory `into`. Raises BadArchive, DiskFull or OSError; the caller deletes what is
    there."""
    _Unpacking(file, into, limits, report).run()


class _Unpacking:
    def __init__(self, file: BinaryIO, into: str, limits: Limits, report: Report) -> None:
        self.file, self.into, self.limits, self.report = file, into, limits, report
        self.packed = os.fstat(file.fileno()).st_size
        self.size = self.count = 0
        self.directories: Set[str] = {""}
        self.files: Dict[str, int] = {}
        self.links: List[Entry] = []

    def run(self) -> None:
        with in_words():
            for entry in entries(self.file):
                self.count += 1
                if self.count > self.limits.entries:
                    raise BadArchive("it holds more than %d files" % self.limits.entries)
                self.take(entry)
                self.report(min(self.file.tell(), self.packed), self.packed)
        self.make_links()

    def take(self, entry: Entry) -> None:
        parts = self.parts_of(entry)
        path = "/".join(parts)
        if entry.kind == DIRECTORY:
            self.make_directories(parts, entry)
            return
        if not parts:
            raise self.bad(entry, "has no name")
        self.make_directories(parts[:-1], entry)
        if path in self.directories or path in self.files:
            raise self.bad(entry, "is in it twice")
        if entry.kind == FILE:
            self.files[path] = self.write(entry, path)
        elif entry.kind == HARD_LINK:
            self.link_again(entry, path)
        elif entry.kind == LINK:
            self.files[path] = -1
            self.links.append(entry._replace(name=path))
        else:
            raise self.bad(entry, "is a device or a pipe")

    def parts_of(self, entry: Entry) -> List[str]:
        """The parts of a name that stays inside, or BadArchive."""
        name = entry.name
        if name.startswith("/"):
            raise self.bad(entry, "has an absolute name")
        if any(ord(char) < 32 or ord(char) == 127 for char in name):
            raise self.bad(entry, "has a control character in its name")
        try:
            size = len(name.encode("utf-8"))
        except UnicodeEncodeError:
            raise self.bad(entry, "has a name that is not UTF-8") from None
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise self.bad(entry, "leads out of it")
        if (
            size > MAX_PATH
            or len(parts) > MAX_DEPTH
            or any(len(os.fsencode(part)) > MAX_NAME for part in parts)
        ):
            raise self.bad(entry, "has a name that is too long, or lies too deep")
        return parts

    def bad(self, entry: Entry, why: str) -> BadArchive:
        return BadArchive("its entry %d, %.200r, %s" % (self.count, entry.name, why))

    def make_directories(self, parts: List[str], entry: Entry) -> None:
        for end in range(1, len(parts) + 1):
            path = "/".join(parts[:end])
            if path in self.directories:
                continue
            if path in self.files:
                raise self.bad(entry, "lies below a file")
            try:
                os.mkdir(self.place(path), 0o700)
            except FileExistsError:
                raise self.bad(entry, "is in it twice, on this file system") from None
            self.directories.add(path)
            if len(self.directories) > self.limits.entries:
                raise BadArchive("it holds more than %d directories" % self.limits.entries)

    def place(self, path: str) -> str:
        return os.path.join(self.into, *path.split("/"))

    def create(self, entry: Entry, path: str, mode: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(self.place(path), flags, mode)
        except FileExistsError:
            # A file system that ignores case has no room for both `a` and `A`.
            raise self.bad(entry, "is in it twice, on this file system") from None

    def write(self, entry: Entry, path: str) -> int:
        self.check_room(entry, entry.size)
        fd = self.create(entry, path, 0o700 if entry.mode & 0o100 else 0o600)
        written = 0
        try:
            source = entry.open()
            while True:
                data = source.read(BLOCK)
                if not data:
                    break
                written += len(data)
                self.count_bytes(len(data))
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
        finally:
            os.close(fd)
        if written != entry.size:
            raise self.bad(entry, "is cut")
        return written

    def check_room(self, entry: Entry, size: int) -> None:
        if size < 0:
            raise self.bad(entry, "has a negative size")
        if self.size + size > self.limits.size:
            raise BadArchive("it holds more than %d bytes" % self.limits.size)
        if size + kept_free(self.into) > free_bytes(self.into):
            raise DiskFull(
                "the disk of this host is full: %r of the archive has %d bytes" % (entry.name, size)
            )

    def count_bytes(self, size: int) -> None:
        self.size += size
        if self.size > self.limits.size:
            raise BadArchive("it holds more than %d bytes" % self.limits.size)
        if self.size > self.limits.ratio_from and self.size > self.limits.ratio * self.packed:
            raise BadArchive("it grows to more than %d times its size" % self.limits.ratio)

    def link_again(self, entry: Entry, path: str) -> None:
        """A hard link to a file of this archive. It counts as a file of that size: copies of the tree have it twice."""
        before = "/".join(self.parts_of(entry._replace(name=entry.target)))
        size = self.files.get(before, -1)
        if size < 0:
            raise self.bad(entry, "is a hard link to what is not a file before it")
        self.count_bytes(size)
        os.link(self.place(before), self.place(path), follow_symlinks=False)
        self.files[path] = size

    def make_links(self) -> None:
        """Make the symbolic links, then look where each of them really leads: they may lead through each other."""
        for entry in self.links:
            self.check_target(entry)
            os.symlink(entry.target, self.place(entry.name))
        top = os.path.realpath(self.into)
        for entry in self.links:
            found = os.path.realpath(self.place(entry.name))
            if found != top and not found.startswith(top + os.sep):
                raise self.bad(entry, "is a link that leads out of it")

    def check_target(self, entry: Entry) -> None:
        target = entry.target
        if not target or len(target) > MAX_PATH or any(ord(char) < 32 or ord(char) == 127 for char in target):
            raise self.bad(entry, "is a link with a target that is no name")
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(entry.name), target))
        if target.startswith("/") or inside == ".." or inside.startswith("../"):
            raise self.bad(entry, "is a link that leads out of it")
