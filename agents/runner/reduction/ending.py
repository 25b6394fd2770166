"""How a trainer's program ends when a reducer is lost: as by a signal after which the whole job is run again.

What the exit status of a replica is, its first process decides: torchrun or a shell would make an ordinary error of
it. So SIGABRT goes to the first process of the run. Whoever keeps the run is none of its processes, and is left alone.
In a container the first process is mostly one that only passes signals on. The kernel ignores SIGABRT for process 1 of
a namespace, so there its child gets it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Callable, Dict, NoReturn, Tuple

MARK = "TRAINYARD_MARK"


def first_process(mark: str, read: Callable[[int], Tuple[int, Dict[str, str]]]) -> int:
    """The topmost of our own ancestors, and of ourselves, whose environment has the mark of the run, but for
    process 1. `read(pid)`: its parent, and its environment."""
    found, below, pid = 0, 0, os.getpid()
    while pid > 0:
        try:
            parent, environment = read(pid)
        except OSError:
            break
        if environment.get(MARK) != mark and found:
            break
        found, below, pid = pid, found, parent
    return below if found == 1 and below else found


def read_process(pid: int) -> Tuple[int, Dict[str, str]]:
    with open("/proc/%d/stat" % pid, "rb") as file:
        parent = int(file.read().rpartition(b")")[2].split()[1])
    with open("/proc/%d/environ" % pid, "rb") as file:
        pairs = (entry.partition(b"=") for entry in file.read().split(b"\0"))
        return parent, {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def abort(sentence: str) -> NoReturn:
    """Say why, and end the program by SIGABRT."""
    print("reduction: %s" % sentence, file=sys.stderr, flush=True)
    mark = os.environ.get(MARK, "")
    if mark:
        first = first_process(mark, read_process)
        if first and first != os.getpid():
            with contextlib.suppress(OSError):
                os.kill(first, signal.SIGABRT)
    os.abort()
