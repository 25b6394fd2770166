"""The file that cloudml-hypertune writes, the keeper's half: every report that ever stood in it is kept.

The library makes its file anew at each report, with the last 100 of them: who reads it by the clock finds it empty,
torn, or a hundred reports further. So nothing is read that somebody writes. Each opening for writing gets a file of its
own: while the program waits in `open`, for the kernel asks us first (a lease), another file takes the name, and what
is opened is never opened again by it. When it is closed, its lines are appended to a file that only grows (the spool).

The program waits for that a tenth of a millisecond. It never waits for a keeper that is dead, for a lease ends with its
holder; and the kernel takes it from one that is suspended. On a file system without leases the events of inotify take
their place: then a report can be missed if a hundred others follow before this process gets a core.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import select
import stat
from typing import Dict, Iterator, List, Tuple

from agents.runner.linux import IN_CLOSE_WRITE, IN_CREATE, IN_MOVED_TO, IN_OPEN, IN_Q_OVERFLOW, Inotify
from agents.runner.metrics.places import HELD, SPOOL, hypertune_path, metrics_directory
from agents.runner.metrics.reports import MAX_LINE, whole_lines

SPOOL_BYTES = 48 << 20
READ_BYTES = 1 << 20
# Files that were renamed and are still open, or may be: a program that never closes them gets no more of them.
MAX_HELD = 64
# The lines that are remembered, so that each is kept once: each file repeats those of the one before it.
REMEMBERED = 4096


class HeldFile:
    """A file that has, or had, the name: our descriptor, the inotify watch, and the second name by which it stays."""

    def __init__(self, path: str, fd: int, watch: int) -> None:
        self.path, self.fd, self.watch = path, fd, watch


class HypertuneFile:
    """Used by one keeper at a time. `look` is called whenever something may have happened; nothing here raises."""

    def __init__(self, directory: str) -> None:
        self.directory, self.path = directory, hypertune_path(directory)
        self.fd = -1
        self._inotify: Inotify | None = None
        self._current: HeldFile | None = None
        self._held: Dict[int, HeldFile] = {}
        self._closed: List[int] = []
        self._number = 0
        self._seen: Dict[bytes, None] = {}
        self._mode, self._limit = 0o600, SPOOL_BYTES
        self._leased, self._directory_watch = False, -1

    def watch(self) -> None:
        """Begin, or go on where a keeper was killed."""
        if not os.path.isdir(metrics_directory(self.directory)):
            return
        with contextlib.suppress(OSError):
            if os.stat(metrics_directory(self.directory)).st_mode & stat.S_IWOTH:
                self._mode = 0o666
            if os.path.isdir(os.path.join(self.directory, HELD)):
                self._recover()
            self._current = self._adopt(self.path)

    def look(self, poll: select.poll | None = None) -> None:
        """Take what was closed, and put another file in the place of one that is being opened."""
        if self._current is None:
            return
        before = self.fd
        self._look()
        if poll is not None and self.fd != before:
            if before >= 0:
                poll.unregister(before)
            if self.fd >= 0:
                poll.register(self.fd, select.POLLIN)

    def _look(self) -> None:
        try:
            closed, touched = self._events()
            # Nothing tells of a file that is renamed to this name before the program has opened ours.
            if touched or (self._inotify is None and self._is_replaced()) or self._is_being_opened():
                self._rotate()
            self._take(closed)
        except OSError:
            self._release()  # a full disk, for example: from now on the last reports alone are known

    def finish(self) -> None:
        """No process of the run is left: read what nobody has closed."""
        with contextlib.suppress(OSError):
            self.look()
            for held in [*self._held.values(), *([self._current] if self._current else [])]:
                self._keep(read_lines(held.fd))
            if self._current and self._is_replaced():
                self._keep(read_file(self.path))
        self._close_files()
        with contextlib.suppress(OSError):  # nobody has reported anything: nothing is left of it
            if not os.path.getsize(self.path):
                os.unlink(self.path)
            os.rmdir(metrics_directory(self.directory))

    def recover(self) -> None:
        """No keeper is left, and no process of the run: read all that is here. Whoever closed the run has removed the
        program's directory where its file was empty; what a killed keeper held lies beside it."""
        places = (metrics_directory(self.directory), os.path.join(self.directory, HELD))
        if any(os.path.isdir(place) for place in places):
            self._limit += READ_BYTES
            with contextlib.suppress(OSError):
                self._recover()
                self._keep(read_file(self.path))

    # -- whose turn it is --

    def _events(self) -> Tuple[List[int], bool]:
        """(watches of files that were closed, whether the file that has the name was opened, closed or replaced)."""
        closed: List[int] = []
        touched = False
        for watch, mask in self._inotify.read() if self._inotify else ():
            if mask & (IN_CLOSE_WRITE | IN_Q_OVERFLOW):
                closed += list(self._held) if mask & IN_Q_OVERFLOW else [watch]
            touched = touched or watch in (self._directory_watch, self._name().watch)
        return closed, touched and (self._was_opened(closed) or self._is_replaced())

    def _was_opened(self, closed: List[int]) -> bool:
        return not self._leased or self._name().watch in closed

    def _name(self) -> HeldFile:
        assert self._current is not None
        return self._current

    def _is_replaced(self) -> bool:
        """Whether the program has put a file of its own under the name, or removed ours."""
        try:
            return not os.path.samestat(os.fstat(self._name().fd), os.lstat(self.path))
        except OSError:
            return True

    def _is_being_opened(self) -> bool:
        """Whether the kernel lets somebody wait in `open` until the lease is given up."""
        return self._leased and fcntl.fcntl(self._name().fd, fcntl.F_GETLEASE) == fcntl.F_UNLCK

    # -- taking --

    def _adopt(self, path: str, makes: int = os.O_CREAT) -> HeldFile:
        """The file of that name, with a lease; where that cannot be had, with a watch that tells who opens it."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(path, flags | makes, self._mode)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError("not a plain file")
            if makes:
                with contextlib.suppress(OSError):
                    os.fchmod(fd, self._mode)
            watch = self._watch(path, IN_CLOSE_WRITE) if self._inotify else -1
            self._leased = is_unwritten(fd)
            if not self._leased:
                watch = self._watch(path, IN_CLOSE_WRITE | IN_OPEN)
            return HeldFile(path, fd, watch)
        except OSError:
            os.close(fd)
            raise

    def _watch(self, path: str, mask: int) -> int:
        return self._open_inotify().watch(path, mask)

    def _open_inotify(self) -> Inotify:
        """Kernels grant a login few of these: one is made when a program reports, not for each run."""
        if self._inotify is None:
            self._inotify = Inotify()
            self.fd = self._inotify.fd
            own = metrics_directory(self.directory)
            self._directory_watch = self._inotify.watch(own, IN_MOVED_TO | IN_CREATE)
        return self._inotify

    def _rotate(self) -> None:
        """Put a fresh file under the name. The one that had it is the program's until it is closed."""
        before = self._name()
        # Without inotify nobody tells when a file is closed.
        if len(self._held) >= MAX_HELD or self._open_inotify().fd < 0:
            self._release()
            return
        place = os.path.join(self.directory, HELD)
        os.makedirs(place, 0o700, exist_ok=True)
        self._number += 1
        # So that the next keeper finds it, should this one be killed.
        kept, fresh = os.path.join(place, "%08d" % self._number), os.path.join(place, "fresh")
        is_replaced = self._is_replaced()
        foreign = self._foreign(kept) if is_replaced else None
        if not is_replaced:
            if before.watch < 0:
                before.watch = self._watch(self.path, IN_CLOSE_WRITE)
            with contextlib.suppress(OSError):
                os.link(self.path, kept, follow_symlinks=False)
                before.path = kept
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        self._current = self._adopt(fresh)
        os.rename(fresh, self.path)
        self._current.path = self.path
        for held in (before, foreign):
            if held and held.watch >= 0:
                self._held[held.watch] = held
                give_up_lease(held.fd)
        if is_replaced:
            self._take([held.watch for held in (before, foreign) if held])
            if before.watch < 0:
                os.close(before.fd)  # it had its lease until now: nobody has opened it

    def _foreign(self, kept: str) -> HeldFile | None:
        """The file that the program itself has put under the name."""
        with contextlib.suppress(OSError):
            os.link(self.path, kept, follow_symlinks=False)
            return self._adopt(kept, makes=0)
        return None

    def _take(self, closed: List[int]) -> None:
        """Read what was closed. The kernel tells that before it is done with it: then it is looked at once more."""
        for watch in [*self._closed, *closed]:
            held = self._held.get(watch)
            if held is None:
                continue
            self._keep(read_lines(held.fd))
            # Where there are no leases, nobody knows whether it is open elsewhere: it stays for a while.
            if is_unwritten(held.fd) or (not self._leased and len(self._held) > MAX_HELD // 2):
                del self._held[watch]
                self._drop(held)
            else:
                self._closed.append(watch)
        self._closed = [watch for watch in dict.fromkeys(self._closed) if watch in self._held]

    def _drop(self, held: HeldFile) -> None:
        if self._inotify:
            self._inotify.unwatch(held.watch)
        os.close(held.fd)
        if held.path != self.path:
            with contextlib.suppress(OSError):
                os.unlink(held.path)

    def _release(self) -> None:
        """Stop: no lease, no descriptor. The files stay; the last pass over the run reads them."""
        self._close_files()
        if self._inotify and self._inotify.fd >= 0:
            os.close(self._inotify.fd)
        self._inotify, self.fd = None, -1

    def _close_files(self) -> None:
        """Close the files, which ends their leases. The inotify instance is closed after the run is: that takes the
        kernel ten milliseconds (shared_memory.py), and the last pass does not wait for it."""
        found = [*self._held.values(), *([self._current] if self._current else [])]
        self._current, self._held = None, {}
        for held in found:
            os.close(held.fd)

    # -- the spool --

    def _recover(self) -> None:
        """What a keeper that was killed has left. The newest lines of its spool are known."""
        for line in tail_of(os.path.join(self.directory, SPOOL)):
            self._seen[_key(line)] = None
        for path in held_files(self.directory):
            self._keep(read_file(path))
            self._number = max(self._number, int(os.path.basename(path)))

    def _keep(self, lines: List[bytes]) -> None:
        """Append the lines that are new."""
        fresh = []
        for line in lines:
            key = _key(line)
            if key not in self._seen and len(line) <= MAX_LINE and line[:1] + line[-1:] == b"{}":
                self._seen[key] = None
                fresh.append(line + b"\n")
        while len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        append(os.path.join(self.directory, SPOOL), fresh, self._limit)


def _key(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=12).digest()


def is_unwritten(fd: int) -> bool:
    """Take a lease: then nobody has the file open for writing, and whoever is about to waits for us."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        return True
    except OSError:
        return False


def give_up_lease(fd: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def read_lines(fd: int) -> List[bytes]:
    return os.pread(fd, READ_BYTES, 0).splitlines()


def read_file(path: str) -> List[bytes]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return read_lines(fd) if stat.S_ISREG(os.fstat(fd).st_mode) else []
    finally:
        os.close(fd)


def append(path: str, lines: List[bytes], limit: int) -> None:
    """Append whole lines, up to the size that a spool may have."""
    if not lines:
        return
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        if os.fstat(fd).st_size < limit:
            os.write(fd, b"".join(lines))
    finally:
        os.close(fd)


def tail_of(path: str) -> List[bytes]:
    """The last lines of a plain file. The program may have put a pipe or a link in its place."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode):
                data = os.pread(fd, READ_BYTES, max(0, found.st_size - READ_BYTES))
                return whole_lines(data)[0][-REMEMBERED:]
        finally:
            os.close(fd)
    return []


def held_files(directory: str) -> Iterator[str]:
    """What was under the name once, in order."""
    place = os.path.join(directory, HELD)
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(place)):
            if name.isascii() and name.isdigit():  # others are digits too, and no numbers: ²
                yield os.path.join(place, name)
