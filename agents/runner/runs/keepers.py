"""The keepers of one serve: one that is done with its run waits some seconds for the next one.

A fresh fork copies each page of memory that it writes to, and spends most of its time on that. An outer keeper that
has come to the end of its run, and has no child left, has these copies already. So serve hands it the lock of the next
run and its order, over a socket. It knows nothing of the run before: all descriptors but that socket are closed, and
the next run has an inner keeper of its own. A keeper ends with the connection of its serve, or with its run if that
takes longer.
"""

from __future__ import annotations

import array
import contextlib
import marshal
import os
import socket
import time
from typing import Any, Dict, List, Tuple

from agents.runner.forks import close_all_but, fork_detached, write_traceback
from agents.runner.home import Home
from agents.runner.linux import retitle
from agents.runner.runs.keeper import Keeper
from agents.runner.runs.orders import Refused

TITLE = "trainyard-keeper"
# How many wait, and how long. Each has some megabytes of memory of its own.
MAX_FREE, FREE_S = 8, 5.0
# A longer order goes to a fresh fork, which need not be sent it.
MAX_HANDED = 32 * 1024


class Keepers:
    """Serve's end of their sockets."""

    def __init__(self, umask: int) -> None:
        self.umask = umask
        self.by_fd: Dict[int, socket.socket] = {}
        self._free: List[Tuple[int, float]] = []  # (descriptor, since when), the newest last

    def keep(self, home: Home, run: str, seal: str, document: Dict[str, Any] | Refused, lock: int) -> None:
        """Have a keeper start this run and stay with it: one that is free, or a fresh one."""
        handed = _packed(run, seal, document)
        while handed and self._free:
            if self._hand_over(self._free.pop()[0], handed, lock):
                return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            ours.setblocking(False)
            keep = {lock, theirs.fileno()}
            first = Keeper(home, run, self.umask, seal)
            fork_detached(
                lambda: keep_runs(first, document, theirs), first.directory, keep, "%s %s" % (TITLE, run)
            )
        self.by_fd[ours.fileno()] = ours

    def _hand_over(self, fd: int, handed: bytes, lock: int) -> bool:
        rights = array.array("i", [lock])
        try:
            self.by_fd[fd].sendmsg([handed], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            return True
        except OSError:  # it was killed
            self._drop(fd)
            return False

    def read(self, fd: int) -> None:
        """A keeper is free from now on, or is no more."""
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
            self._drop(self._free.pop(0)[0])

    def _drop(self, fd: int) -> None:
        """The keeper of that socket ends, if it is not at a run."""
        self._free = [each for each in self._free if each[0] != fd]
        self.by_fd.pop(fd).close()


def _packed(run: str, seal: str, document: Dict[str, Any] | Refused) -> bytes:
    """What a free keeper is to know; nothing where a fresh one has to be forked."""
    if isinstance(document, dict):
        with contextlib.suppress(ValueError):  # nested too deeply
            packed = marshal.dumps((run, seal, document))
            return packed if len(packed) <= MAX_HANDED else b""
    return b""


def keep_runs(keeper: Keeper, document: Dict[str, Any] | Refused, serve: socket.socket) -> None:
    """In a fresh fork: keep this run, and then those that serve hands over."""
    while _keep(keeper, document):
        close_all_but({0, 1, 2, serve.fileno()})
        retitle(TITLE)
        try:
            serve.send(b"f")
            handed = _receive(serve)
        except OSError:
            return
        if not handed:
            return
        run, seal, document = marshal.loads(handed)
        retitle("%s %s" % (TITLE, run))
        keeper = Keeper(keeper.home, run, keeper.umask, seal)


def _keep(keeper: Keeper, document: Dict[str, Any] | Refused) -> bool:
    """Keep one run. True if nothing of it is left in this process or below it."""
    try:
        return keeper.outer(document) and _has_no_child()
    except BaseException:
        write_traceback(keeper.directory)
        os._exit(1)


def _has_no_child() -> bool:
    """A child that hangs, of a look at a GPU for example, is none of the next run's."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return False
    except ChildProcessError:
        return True


def _receive(serve: socket.socket) -> bytes:
    """What serve hands over; nothing when it ends, or needs this keeper no more. The lock that comes with it is an open
    descriptor from now on."""
    space = socket.CMSG_SPACE(array.array("i").itemsize)
    return serve.recvmsg(MAX_HANDED, space, socket.MSG_CMSG_CLOEXEC)[0]
