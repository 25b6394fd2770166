"""The code of a job in a work directory: a copy of a tree of the cache, which the job may change."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat

from agents.runner.cache.store import TREES, Cache
from agents.runner.files import delete_tree

_FICLONE = 0x40049409
_BLOCK = 1 << 20


def put_tree(cache: Cache, key: str, work: str, directory: str) -> bool:
    """Copy a tree into a work directory that does not exist yet; False if the tree is not here.

    All or nothing: a restart that finds the work directory finds the files as the run before has left them.
    """
    if os.path.lexists(work):
        return True
    with cache.locked(TREES, key, shared=True):
        if not cache.has(TREES, key):
            return False
        draft = "%s.new" % work
        delete_tree(draft)
        top = os.path.join(draft, *[part for part in directory.split("/") if part])
        os.makedirs(os.path.dirname(top), 0o700, exist_ok=True)
        try:
            copy_tree(cache.path(TREES, key), top)
            os.rename(draft, work)
        except BaseException:
            delete_tree(draft)
            raise
    return True


def copy_tree(source: str, target: str) -> None:
    """Copy files, directories and links. Files share their disk blocks where the file system can."""
    os.mkdir(target, 0o700)
    with os.scandir(source) as found:
        for entry in found:
            place = os.path.join(target, entry.name)
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), place)
            elif entry.is_dir(follow_symlinks=False):
                copy_tree(entry.path, place)
            else:
                copy_file(entry.path, place)


def copy_file(source: str, target: str) -> None:
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        facts = os.fstat(reading)
        mode = 0o600 | stat.S_IMODE(facts.st_mode) & 0o700
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            if not _share_blocks(reading, writing):
                left = facts.st_size
                while left > 0:
                    sent = os.sendfile(writing, reading, None, min(left, _BLOCK))
                    if not sent:
                        break
                    left -= sent
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _share_blocks(reading: int, writing: int) -> bool:
    with contextlib.suppress(OSError):
        fcntl.ioctl(writing, _FICLONE, reading)
        return True
    return False
