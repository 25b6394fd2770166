"""Linux, through ctypes: what the standard library of Python 3.7 does not offer."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import signal
import struct
import time
from typing import Iterator, List, Tuple

libc = ctypes.CDLL(None, use_errno=True)
# What os.fork calls. It is found here, so that no fresh fork has to; and as in a fork, no other thread takes its turn.
# None in a Python that was linked without its symbols.
_syscall = ctypes.PyDLL(None, use_errno=True).syscall
_before_fork, _after_fork, _after_fork_in_child = (
    getattr(ctypes.pythonapi, "PyOS_" + name, None)
    for name in ("BeforeFork", "AfterFork_Parent", "AfterFork_Child")
)
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
SYS_PIDFD_SEND_SIGNAL, SYS_PIDFD_OPEN, _SYS_CLONE3 = 424, 434, 435  # the same numbers on every architecture
_CLONE_INTO_CGROUP = 0x200000000
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
IN_MODIFY, IN_MOVED_TO, IN_CREATE, IN_DELETE_SELF = 0x2, 0x80, 0x100, 0x400
IN_CLOSE_WRITE, IN_OPEN, IN_Q_OVERFLOW, IN_IGNORED = 0x8, 0x20, 0x4000, 0x8000
IN_DONT_FOLLOW = 0x2000000


def become_subreaper() -> None:
    """From now on, orphans below this process become its children instead of init's."""
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def die_with_parent() -> None:
    """From now on, this process is killed when the one that forked it ends. Survives exec, but not a fork."""
    libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(9), 0, 0, 0)


# A tenth of the processor that others get.
NICE = 10


def give_way(nice: int = NICE) -> None:
    """From now on, this process and those that it starts get the processor when others do not need it.

    Where the kernel shares the processor between sessions first (autogroup), a nice value counts only inside of one. So
    a process that calls this has a session to itself.
    """
    with contextlib.suppress(OSError):
        os.nice(nice)
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as file:
        file.write("%d" % nice)


def fork_into_cgroup(fd: int) -> int:
    """As os.fork, but the child begins in this cgroup of v2; an OSError where the kernel (before Linux 5.7) or this
    Python cannot.

    To join a cgroup later takes ten milliseconds, in which the kernel waits for all processors. The C library knows
    nothing of this child: all that it may do is to execute a program.
    """
    if not (_before_fork and _after_fork and _after_fork_in_child):
        raise OSError(errno.ENOSYS, "clone3")
    arguments = struct.pack("11Q", _CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, fd)
    _before_fork()
    pid: int = _syscall(ctypes.c_long(_SYS_CLONE3), arguments, ctypes.c_size_t(len(arguments)))
    if pid == 0:
        _after_fork_in_child()
        return 0
    _after_fork()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone3")
    return pid


def punch_hole(fd: int, start: int, length: int) -> bool:
    """Free a range's disk blocks; offsets and size stay. False where the file system cannot."""
    done: int = libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_long(start), ctypes.c_long(length))
    return done == 0


def retitle(title: str) -> None:
    """Show `title` in ps. Keepers are forked, and would otherwise look like the serve that they came from."""
    libc.prctl(_PR_SET_NAME, ctypes.c_char_p(title.encode()[:15]), 0, 0, 0)
    start, room = own_argv()
    if room:
        ctypes.memmove(start, title.encode()[: room - 1].ljust(room, b"\0"), room)


@functools.lru_cache(maxsize=None)
def own_argv() -> Tuple[int, int]:
    """Where our own command line is in memory, which is the same place in a fork: (address, length)."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
        start, end = int(fields[45]), int(fields[46])
    except (OSError, ValueError, IndexError):
        return 0, 0
    return start, end - start if 0 < end - start < 1 << 20 else 0


class Inotify:
    """Directory watches as numbered events, or nothing at all where the kernel grants no more of them."""

    def __init__(self) -> None:
        self.fd = -1
        if not os.environ.get("TRAINYARD_NO_INOTIFY"):
            self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def watch(self, path: str, mask: int) -> int:
        if self.fd < 0:
            return -1
        found: int = libc.inotify_add_watch(self.fd, os.fsencode(path), mask)
        return found

    def unwatch(self, watch: int) -> None:
        if self.fd >= 0 and watch >= 0:
            libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> Iterator[Tuple[int, int]]:
        """(watch, mask) of everything that happened."""
        while True:
            try:
                data = os.read(self.fd, 65536)
            except (BlockingIOError, InterruptedError):
                return
            at = 0
            while at < len(data):
                watch, mask, _cookie, length = struct.unpack_from("iIII", data, at)
                at += 16 + length
                yield watch, mask


@functools.lru_cache(maxsize=None)
def boot_id() -> str:
    """The id of this boot: it cannot change while a process lives."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def read_kernel_file(path: str) -> bytes:
    """What /proc or /sys says there. `open` would make six more system calls, to find out what is no plain file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts: List[bytes] = []
        while not parts or parts[-1]:
            parts.append(os.read(fd, 65536))
        return b"".join(parts)
    finally:
        os.close(fd)


def booted_at() -> float:
    """The wall time of the boot, by the clock as it is set now."""
    return time.time() - time.clock_gettime(7)  # CLOCK_BOOTTIME
