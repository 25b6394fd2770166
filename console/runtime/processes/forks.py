"""Forks of a process that has loaded everything and runs no threads: a child starts in milliseconds, and shares memory.

The parent must have no thread when it forks: a lock that a thread holds would stay locked in the child for ever.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from typing import TypeAlias

from setproctitle import setproctitle

Work: TypeAlias = Callable[[], object]

PR_SET_PDEATHSIG = 1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_fork = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Fork:
    """A child, and the end of a pipe from which its output is read."""

    process: ForkProcess
    output: int

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def exit_code(self) -> int | None:
        """None while it runs; negative if a signal killed it."""
        return self.process.exitcode


def start(name: str, work: Work, keep: Iterable[int] = ()) -> Fork:
    """Fork a child that does the work and nothing else. It has no file of the parent's but those that it is to keep."""
    gc.freeze()  # pages that the collector does not touch stay shared
    ours, theirs = os.pipe()
    child = _fork.Process(target=_live, args=(name, work, os.getpid(), theirs, tuple(keep)), daemon=False)
    child.start()
    os.close(theirs)
    os.set_blocking(ours, False)
    return Fork(child, ours)


def run_to_end(work: Work) -> int:
    """Do the work in a child that is gone afterwards, with its threads and connections. Returns its exit code."""
    child = _fork.Process(target=work)
    child.start()
    child.join()
    return child.exitcode or 0


def replace_by(argv: tuple[str, ...], keep: Iterable[int] = ()) -> Work:
    """The work of a child that becomes another program."""

    def become() -> None:
        for number in keep:
            os.set_inheritable(number, True)
        os.execvp(argv[0], argv)

    return become


def _live(name: str, work: Work, parent: int, output: int, keep: tuple[int, ...]) -> None:
    # In a session of its own: Ctrl-C reaches only the supervisor, which then stops the children in order.
    os.setsid()
    _die_with(parent)
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    _close_all_but({0, 1, 2, *keep})
    # Otherwise the title would be written over what /proc shows of the environment.
    os.environ["SPT_NOENV"] = "1"
    setproctitle(f"trainyard: {name}")
    work()


def _die_with(parent: int) -> None:
    """Ask the kernel to send SIGKILL when the parent dies, also by SIGKILL. Only Linux has this; it outlives exec."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before we could ask
            os._exit(1)


def _close_all_but(keep: set[int]) -> None:
    """Those that are open, for a container may allow a billion of them."""
    for number in [int(name) for name in os.listdir("/dev/fd")]:
        if number not in keep:
            with contextlib.suppress(OSError):  # the listing itself had one, which is closed by now
                os.close(number)
