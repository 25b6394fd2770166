"""Forks of this program: on their own, and never for longer than they may take."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from typing import Callable, Set

from agents.runner.linux import retitle

_POLITE = "TERM INT HUP QUIT PIPE USR1 USR2 ALRM TSTP TTIN TTOU"


def detach(keep: Set[int], title: str) -> None:
    """Make a fork of serve independent of it: own session, no descriptors but `keep`, deaf to polite signals."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for name in _POLITE.split():
        signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
    os.chdir("/")
    retitle(title)


def fork_detached(act: Callable[[], None], directory: str, keep: Set[int], title: str) -> int:
    """Run `act` in a process of its own that outlives this one. What goes wrong there is left in keeper.err."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        detach(keep, title)
        act()
        status = 0
    except BaseException:
        leave_trace(directory)
    finally:
        os._exit(status)


def leave_trace(directory: str) -> None:
    with contextlib.suppress(OSError), open(os.path.join(directory, "keeper.err"), "a") as file:
        if file.tell() < 64 * 1024:
            traceback.print_exc(file=file)


def in_time(act: Callable[[], None], patience_s: float) -> bool:
    """Have a child do it. False if it failed, or hangs: then it is killed, and left behind if even that takes long."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return False
