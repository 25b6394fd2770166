"""Put: takes a file from the console into the cache, by its SHA-256. A connection that was cut goes on where it ended.

One line of JSON in (`sha256`, `size`), one line out, then the bytes, then one line out. The first line that goes out
says from which offset the bytes are wanted. While another connection ships the same file, lines tell how much has
arrived, so that nobody sends it twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import select
import signal
import time
from typing import Any, NoReturn

from agents.runner.cache.store import BLOBS, Cache
from agents.runner.files import FULL, free_bytes, fsync_directory, kept_free, read_line
from agents.runner.home import Home, is_key
from agents.runner.linux import NICE, give_way, read_kernel_file
from agents.runner.processes import read_process
from agents.runner.shells.frames import json_line
from agents.runner.wire import PUT_PREFACE, WireError, decode_object

BLOCK = 256 * 1024
# Each piece that sshd hands over costs both, and the console a message: so there is room for larger ones.
F_SETPIPE_SZ, PIPE_BYTES = 1031, 1 << 20
# A console that sends nothing for so long is gone, though the connection does not say so.
SILENT_S = 120.0
# How often the length of the file is told while somebody else ships it, or its begin is read.
TELL_S = 1.0
MAX_SIZE = 1 << 42
# Between sshd and this program are a login shell, perhaps, and what that has started.
MOST_SHELLS = 3


class PutFailed(Exception):
    """The file cannot be taken; `reason` is the word for it on the wire."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def main() -> NoReturn:
    os.write(1, PUT_PREFACE)
    give_way()  # training, its log and its shells come first
    let_connection_give_way()
    # A disk that hangs must not keep this process for ever: each step that makes progress sets the alarm anew.
    signal.alarm(int(SILENT_S))
    try:
        request = decode_object(read_line(0))
        home = Home(request["deployment"])
        home.make()
        take(Cache(home), request["sha256"], request["size"])
        tell(ok=True)
    except PutFailed as error:
        tell(error=str(error), reason=error.reason)
        os._exit(1)
    except OSError as error:
        full = error.errno in FULL
        tell(error=error.strerror or repr(error), reason="disk_full" if full else "storage")
        os._exit(1)
    except (WireError, ValueError, KeyError, TypeError) as error:
        tell(error="%s" % (error or repr(error)), reason="bad_request")
        os._exit(1)
    os._exit(0)


def let_connection_give_way() -> None:
    """The same for sshd's process of this connection, which nothing else uses: to decrypt takes it as long as all that
    happens here. Elsewhere than below OpenSSH, nothing."""
    pid = os.getppid()
    for _ in range(MOST_SHELLS + 1):
        found = read_process(pid)
        if found is None:
            return
        with contextlib.suppress(OSError):  # it is not of this login, or has ended
            if read_kernel_file("/proc/%d/comm" % pid).startswith(b"sshd"):
                os.setpriority(os.PRIO_PROCESS, pid, max(NICE, os.getpriority(os.PRIO_PROCESS, pid)))
                return
        pid = found.parent


def tell(**words: Any) -> None:
    data = json_line(words)
    with contextlib.suppress(OSError):  # nobody listens any more
        while data:
            data = data[os.write(1, data) :]


def take(cache: Cache, sha: str, size: int) -> None:
    """Take the file, or wait until another connection has taken it."""
    if not is_key(sha) or type(size) is not int or not 0 <= size <= MAX_SIZE:
        raise ValueError("sha256 and size of a file are expected")
    while True:
        lock = cache.lock(BLOBS, sha)
        if lock >= 0:
            break
        tell(have=have(cache, sha))
        # A connection that ends wakes the poll; what nobody asked for yet is not read.
        if select.select([0], [], [], TELL_S)[0] and not os.read(0, 1):
            os._exit(0)
        signal.alarm(int(SILENT_S))
    try:
        if not cache.has(BLOBS, sha):
            receive(cache, sha, size)
        else:
            tell(ok=True, complete=True)
    finally:
        os.close(lock)


def have(cache: Cache, sha: str) -> int:
    """How many bytes of the file are here."""
    for path in (cache.path(BLOBS, sha), cache.path(BLOBS, sha) + ".part"):
        with contextlib.suppress(OSError):
            return os.lstat(path).st_size
    return 0


def receive(cache: Cache, sha: str, size: int) -> None:
    path = cache.path(BLOBS, sha)
    part = path + ".part"
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        start = os.fstat(fd).st_size
        if start > size:
            os.ftruncate(fd, 0)
            start = 0
        check_room(cache, size - start, size)
        digest = hashlib.sha256()
        os.lseek(fd, 0, os.SEEK_SET)
        hash_begin(fd, start, digest)
        # Only now: once it may send, the console does not wait for as long as a large file takes to be read.
        tell(ok=True, **{"from": start})
        fill(fd, size - start, digest)
        if digest.hexdigest() != sha:
            os.unlink(part)
            raise PutFailed("damaged", "the bytes that arrived are not those of %s" % sha[:12])
        os.fsync(fd)
        os.rename(part, path)
        fsync_directory(os.path.dirname(path))
    except OSError as error:
        if error.errno in FULL:
            os.unlink(part)  # what cannot be completed must not keep the disk full
        raise
    finally:
        os.close(fd)


def make_room(cache: Cache) -> None:
    """What nothing has used lately goes, before a user is told that there is no room."""
    cache.throw_away(time.time())


def check_room(cache: Cache, missing: int, size: int) -> None:
    free = free_bytes(cache.base)
    if missing + kept_free(cache.base) > free:
        make_room(cache)
        free = free_bytes(cache.base)
    if missing + kept_free(cache.base) > free:
        text = "the disk of this host is full: a file of %d MB is to be put there, and %d MB are free"
        raise PutFailed("disk_full", text % (size >> 20, free >> 20))


def hash_begin(fd: int, size: int, digest: Any) -> None:
    """Hash what an earlier connection has left: the digest is that of the whole file. Meanwhile tell what is here."""
    there, told = size, time.monotonic()
    while size > 0:
        if time.monotonic() - told >= TELL_S:
            told = time.monotonic()
            tell(have=there)
        data = os.read(fd, min(BLOCK, size))
        if not data:
            raise PutFailed("storage", "the file became shorter while it was read")
        signal.alarm(int(SILENT_S))
        digest.update(data)
        size -= len(data)


def fill(fd: int, missing: int, digest: Any) -> None:
    with contextlib.suppress(OSError):  # it is no pipe, or the login has many
        fcntl.fcntl(0, F_SETPIPE_SZ, PIPE_BYTES)
    block = memoryview(bytearray(BLOCK))
    while missing > 0:
        size = os.readv(0, [block[:missing]])
        if not size:
            raise PutFailed("cut", "the connection ended %d bytes before the end" % missing)
        signal.alarm(int(SILENT_S))
        view = block[:size]
        digest.update(view)
        missing -= size
        while view:
            view = view[os.write(fd, view) :]
