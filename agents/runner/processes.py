"""Processes: descendants, processes with a run's mark, and how to kill all of them without missing one."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
from typing import Callable, Dict, List, NamedTuple, Set, Tuple

from agents.runner.linux import SYS_PIDFD_OPEN, SYS_PIDFD_SEND_SIGNAL, libc, read_kernel_file


class Process(NamedTuple):
    pid: int
    parent: int
    state: str
    ticks: int  # start time in clock ticks since boot: with the boot id and the pid, an identity


def read_process(pid: int) -> Process | None:
    try:
        # The name in parentheses may itself hold spaces and parentheses: count from the last one.
        fields = read_kernel_file("/proc/%d/stat" % pid).rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return Process(pid, int(fields[1]), fields[0].decode("ascii"), int(fields[19]))


def all_processes() -> Dict[int, Process]:
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def descendants(roots: Set[int], everyone: Dict[int, Process]) -> Set[int]:
    """All processes below `roots`, without the roots."""
    children: Dict[int, List[int]] = {}
    for process in everyone.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: Set[int] = set()
    left = list(roots)
    while left:
        for pid in children.get(left.pop(), ()):
            if pid not in found:
                found.add(pid)
                left.append(pid)
    return found


def children_of(pid: int) -> List[int]:
    """The children of a process: each of its threads has its own. A process that ends meanwhile has none."""
    found: List[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/%d/task" % pid):
            with contextlib.suppress(OSError), open("/proc/%d/task/%s/children" % (pid, task)) as file:
                found += [int(word) for word in file.read().split()]
    return found


def has_mark(pid: int, mark: str) -> bool:
    """Whether a process was started with the run's mark in its environment. Only our own processes are readable."""
    return has_variable(pid, "TRAINYARD_MARK=" + mark)


def has_variable(pid: int, variable: str) -> bool:
    """`variable`: NAME=VALUE, as the process was started with it."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return variable.encode() in file.read().split(b"\0")
    except OSError:
        return False


def _only_ours(pid: int) -> bool:
    try:
        return os.stat("/proc/%d" % pid).st_uid == os.getuid()
    except OSError:
        return False


def marked(mark: str, everyone: Dict[int, Process]) -> Set[int]:
    """Processes with the run's mark, and all below them. Never this process or those above it."""
    if not mark:
        return set()
    above, pid = {os.getpid()}, os.getppid()
    while pid in everyone and pid not in above:
        above.add(pid)
        pid = everyone[pid].parent
    roots = {pid for pid in everyone if pid not in above and _only_ours(pid) and has_mark(pid, mark)}
    return (roots | descendants(roots, everyone)) - above


def signal_process(pid: int, ticks: int, signum: int) -> str:
    """Signal a process, never another one that got its pid since. Returns "sent", "gone" or "denied".

    The pidfd pins the process down first; only then are its start ticks compared.
    """
    fd: int = libc.syscall(SYS_PIDFD_OPEN, pid, 0)
    if fd < 0 and ctypes.get_errno() == errno.ESRCH:
        return "gone"
    try:
        found = read_process(pid)
        if found is None or found.ticks != ticks:
            return "gone"
        try:
            if (
                fd < 0
            ):  # a kernel before 5.3, or a filter that forbids pidfds: the window is microseconds wide
                os.kill(pid, signum)
            elif libc.syscall(SYS_PIDFD_SEND_SIGNAL, fd, signum, None, 0) != 0:
                raise OSError(ctypes.get_errno(), "pidfd_send_signal")
        except OSError as error:
            return "gone" if error.errno == errno.ESRCH else "denied"
        return "sent"
    finally:
        if fd >= 0:
            os.close(fd)


class Denied(NamedTuple):
    """A process that may not be signalled, and why."""

    pid: int
    why: str


def describe_survivors(living: List[Process], denied: List[Denied]) -> List[Dict[str, object]]:
    """Processes that could not be killed, and why."""
    reasons = {one.pid: one.why for one in denied}
    return [
        {"pid": one.pid, "why": reasons.get(one.pid, "does not die (state %s)" % one.state)} for one in living
    ]


def signal_all(find: Callable[[], List[Process]], signums: Tuple[int, ...]) -> None:
    """Signal them one by one, the oldest first: a script that sees its command die by the signal before it gets its own
    goes on with its next command."""
    for process in sorted(find(), key=lambda each: (each.ticks, each.pid)):
        for signum in signums:
            signal_process(process.pid, process.ticks, signum)


def freeze_and_kill(find: Callable[[], List[Process]]) -> List[Denied]:
    """One round: stop all processes until a pass finds no new one, then kill them. Returns those that may not be
    killed.

    They are frozen first, because a chain of processes that fork and exit outruns a killer, but not a SIGSTOP.
    """
    live: List[Process] = []
    before: Set[Process] = set()
    for _ in range(50):
        live = find()
        for process in live:
            signal_process(process.pid, process.ticks, signal.SIGSTOP)
        # Compare identities without the state, which freezing changes.
        now = {process._replace(state="", parent=0) for process in live}
        if now <= before:
            break
        before = now
    denied = []
    for process in live:
        if signal_process(process.pid, process.ticks, signal.SIGKILL) == "denied":
            denied.append(Denied(process.pid, "not permitted: it runs as another user"))
    return denied
