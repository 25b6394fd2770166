"""The pairs of keepers of one serve: each run is handed to one that is free, or a fresh one is forked for it."""

from __future__ import annotations

import contextlib
import marshal
import socket
import time
from typing import Any, Dict, List, Tuple

from agents.runner.home import Home
from agents.runner.runs.keeper_pair import MAX_MESSAGE, FirstRun, fork_pair, send
from agents.runner.runs.orders import Refused

# How many wait, and how long. Each process has some megabytes of memory of its own.
MAX_FREE, FREE_S = 8, 5.0
# A longer order goes to a fresh fork, which need not be sent it.
MAX_HANDED = MAX_MESSAGE // 2


class Keepers:
    """Serve's ends of their sockets. When one is closed, its pair ends, or with its run if it is at one."""

    def __init__(self, umask: int) -> None:
        self.umask = umask
        self.by_fd: Dict[int, socket.socket] = {}
        self._free: List[Tuple[int, float]] = []  # (descriptor, since when), the newest last

    def keep(self, home: Home, run: str, seal: str, document: Dict[str, Any] | Refused, lock: int) -> None:
        """Have a pair start this run and stay with it."""
        handed = _packed(run, seal, document)
        while handed and self._free:
            if self._hand_over(self._free.pop()[0], handed, lock):
                return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            fork_pair(home, self.umask, FirstRun(run, seal, document, lock), theirs)
        self.by_fd[ours.fileno()] = ours

    def _hand_over(self, fd: int, handed: bytes, lock: int) -> bool:
        try:
            send(self.by_fd[fd], handed, [lock])
            return True
        except OSError:  # it was killed
            self._drop(fd)
            return False

    def read(self, fd: int) -> None:
        """A pair is free from now on, or is no more."""
        try:
            is_free = bool(self.by_fd[fd].recv(1))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            is_free = False
        if is_free and len(self._free) < MAX_FREE:
            self._free.append((fd, time.monotonic()))
        else:
            self._drop(fd)

    def tick(self, now: float) -> None:
        while self._free and now >= self._free[0][1] + FREE_S:
            self._drop(self._free[0][0])

    def _drop(self, fd: int) -> None:
        self._free = [each for each in self._free if each[0] != fd]
        self.by_fd.pop(fd).close()


def _packed(run: str, seal: str, document: Dict[str, Any] | Refused) -> bytes:
    """What a free pair is to know; nothing where a fresh one has to be forked."""
    if isinstance(document, dict):
        with contextlib.suppress(ValueError):  # nested too deeply
            packed = marshal.dumps((run, seal, document))
            return packed if len(packed) <= MAX_HANDED else b""
    return b""
