"""The cache of one deployment on a host: shipped bytes, unpacked trees, Python environments, images of Apptainer, users
of other images.

What is complete has its own name; what is still being made lies beside it and is made by whoever holds the lock of
that name. A run that uses an entry holds the same lock shared, so that nobody deletes the entry meanwhile. The time of
the lock file is the time of the last use.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import time
from typing import Iterator, List, Tuple

from agents.runner.files import delete_tree, free_bytes
from agents.runner.home import Home, is_key

BLOBS, TREES, ENVIRONMENTS, IMAGES, USERS = KINDS = ("blobs", "trees", "environments", "images", "users")
# What lies beside an entry while it is made.
BESIDE = (".part", ".part.secrets", ".packages")
# What a process that was killed while it wrote an entry of one file has left: that, and its number.
HALF_WRITTEN = ".new."
# An entry that nothing has used for so long is deleted; on a disk with little room, sooner.
UNUSED_S = 14 * 24 * 3600
UNUSED_SHORT_S = 3600
# The disk is short of room below this part of it, or below this many bytes, whichever is less.
SHORT_PART, SHORT_BYTES = 0.1, 20 << 30


class Cache:
    """The paths of the cache, its locks, and what is thrown away."""

    def __init__(self, home: Home) -> None:
        self.base = os.path.join(home.base, "cache")

    def path(self, kind: str, key: str) -> str:
        """The path of an entry. The key is checked here, where it becomes a path."""
        if kind not in KINDS or not is_key(key):
            raise ValueError("not in the cache: %.20r %.100r" % (kind, key))
        return os.path.join(self.base, kind, key)

    def has(self, kind: str, key: str) -> bool:
        return os.path.lexists(self.path(kind, key))

    def make(self, kind: str) -> None:
        for path in (self.base, os.path.join(self.base, kind)):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)

    def lock(self, kind: str, key: str, shared: bool = False, wait: bool = False) -> int:
        """The lock of an entry as an open descriptor, or -1 if others hold it. Marks the entry as used now."""
        self.make(kind)
        path = self.path(kind, key) + ".lock"
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
                if same_file(fd, path):
                    os.utime(fd)
                    return fd
            except BlockingIOError:
                os.close(fd)
                return -1
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # the entry was thrown away just now, and its lock with it: lock the new file

    def share(self, kind: str, key: str, patience_s: float) -> int:
        """The shared lock of an entry as an open descriptor, or -1 if another has it alone for longer than that."""
        until = time.monotonic() + patience_s
        while True:
            fd = self.lock(kind, key, shared=True)
            if fd >= 0 or time.monotonic() > until:
                return fd
            time.sleep(0.01)

    @contextlib.contextmanager
    def locked(self, kind: str, key: str, shared: bool = False) -> Iterator[None]:
        """Wait for the lock of an entry, and hold it."""
        fd = self.lock(kind, key, shared, wait=True)
        try:
            yield
        finally:
            os.close(fd)

    def delete(self, kind: str, key: str) -> None:
        """Delete an entry and what a process that was killed has left beside it. The caller holds its lock."""
        path = self.path(kind, key)
        for beside in ("", *BESIDE):
            delete_tree(path + beside)
        for half in glob.glob(glob.escape(path + HALF_WRITTEN) + "*"):
            delete_tree(half)

    # -- throwing away --

    def throw_away(self, now: float) -> List[str]:
        """Delete what nothing has used for long: the longest unused first, until there is room. Returns the names."""
        gone = []
        for used, kind, key in sorted(self.entries()):
            limit = UNUSED_SHORT_S if self.is_disk_short() else UNUSED_S
            if used > now - limit:
                continue
            fd = self.try_to_own(kind, key)
            if fd < 0:
                continue
            try:
                if os.fstat(fd).st_mtime > used:
                    continue  # a short run has used it since it was listed
                self.delete(kind, key)
                with contextlib.suppress(OSError):
                    os.unlink(self.path(kind, key) + ".lock")
                gone.append("%s/%s" % (kind, key))
            finally:
                os.close(fd)
        return gone

    def entries(self) -> List[Tuple[float, str, str]]:
        """(time of the last use, kind, key) of everything that has a lock."""
        found = []
        for kind in KINDS:
            place = os.path.join(self.base, kind)
            for name in os.listdir(place) if os.path.isdir(place) else ():
                key = name[: -len(".lock")]
                if name.endswith(".lock") and is_key(key):
                    with contextlib.suppress(OSError):
                        found.append((os.lstat(os.path.join(place, name)).st_mtime, kind, key))
        return found

    def try_to_own(self, kind: str, key: str) -> int:
        """The exclusive lock without marking a use; -1 if it is used."""
        path = self.path(kind, key) + ".lock"
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return -1
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except OSError:
            os.close(fd)
            return -1

    def is_disk_short(self) -> bool:
        return is_short_of_room(self.base)


def is_short_of_room(path: str) -> bool:
    """Whether the disk is so full that what may be used again is thrown away sooner."""
    found = os.statvfs(path)
    return free_bytes(path) < min(SHORT_BYTES, found.f_blocks * found.f_frsize * SHORT_PART)


def same_file(fd: int, path: str) -> bool:
    try:
        here, there = os.fstat(fd), os.lstat(path)
    except FileNotFoundError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
