"""The two processes that keep one run after the other: the outer keeper and the inner one, its child.

A fresh fork copies each page of memory that it writes to, and spends most of its time on that: so a pair that is done
with its run, and has nothing left of it, waits some seconds for the next one. By then, all descriptors but the sockets
are closed, no child is left, and nothing refers to an order that was handed over.

Both hold the lock of the run. The inner keeper does all the work. The outer one is told what the inner one has
prepared, makes the claim durable, and waits: for the word that the run is over, or to go on if the inner one is killed.
"""

from __future__ import annotations

import array
import contextlib
import marshal
import mmap
import os
import select
import signal
import socket
from typing import Any, Dict, List, NoReturn, Tuple

from agents.runner.files import fsync_directory
from agents.runner.forks import (
    close_all_but,
    fork_detached,
    has_no_child,
    wake_on_signals,
    write_traceback,
)
from agents.runner.home import Home
from agents.runner.linux import become_subreaper, retitle
from agents.runner.runs.keeper import SYNCED, Keeper, Told
from agents.runner.runs.orders import Refused

TITLE = "trainyard-keeper"
FREE = b"f"  # what each of them says to the one above it when it is done with its run
MAX_MESSAGE = 64 * 1024
_FDS = 253  # the most that Linux sends with a message


class FirstRun:
    """The run that a pair is forked for. Its order may be of any length, for nobody sends it."""

    def __init__(self, run: str, seal: str, document: Dict[str, Any] | Refused, lock: int) -> None:
        self.run, self.seal, self.document, self.lock = run, seal, document, lock


def fork_pair(home: Home, umask: int, first: FirstRun, serve: socket.socket) -> None:
    """`serve`: the pair's end of its socket to serve, over which further runs come, each with its lock."""
    outer = OuterKeeper(home, umask, serve)
    keep = {first.lock, serve.fileno()}
    fork_detached(lambda: outer.keep_runs(first), home.run(first.run), keep, "%s %s" % (TITLE, first.run))


class OuterKeeper:
    """The outer one, for as long as the pair lives."""

    def __init__(self, home: Home, umask: int, serve: socket.socket) -> None:
        self.home, self.umask, self.serve = home, umask, serve
        self.inner = 0
        self.page: mmap.mmap
        self.socket: socket.socket  # to the inner keeper

    def keep_runs(self, first: FirstRun) -> None:
        become_subreaper()
        self.page = mmap.mmap(-1, 4096)
        self.socket, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.inner = os.fork()
        if self.inner == 0:
            self.socket.close()
            self.serve.close()
            InnerKeeper(self, inner).keep_runs(first)
        inner.close()
        self.wake, write = os.pipe()
        for fd in (self.wake, write):
            os.set_blocking(fd, False)
        wake_on_signals(write)
        own = {0, 1, 2, self.serve.fileno(), self.socket.fileno(), self.wake, write}
        run, seal = first.run, first.seal
        while self.stay_with(run, seal):
            close_all_but(own)
            retitle(TITLE)
            handed, locks = self.next_run()
            if not handed:
                break
            run, seal = marshal.loads(handed)[:2]
            retitle("%s %s" % (TITLE, run))
            with contextlib.suppress(OSError):  # it was killed: that is found out next
                send(self.socket, handed, locks)
            handed = b""
        self.socket.close()
        with contextlib.suppress(ChildProcessError):  # it ended by itself
            os.waitpid(self.inner, 0)

    def next_run(self) -> Tuple[bytes, List[int]]:
        """What serve hands over; nothing when it ends, or needs this pair no more, or when the inner keeper ended."""
        with contextlib.suppress(OSError):
            self.serve.send(FREE)
        while not os.waitpid(self.inner, os.WNOHANG)[0]:
            if self.wait_for(self.serve):
                return receive_run(self.serve)
        return b"", []

    def wait_for(self, of: socket.socket) -> bool:
        """Until there is something to read, or the inner keeper may have ended."""
        poll = select.poll()
        poll.register(of, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        found = [fd for fd, _ in poll.poll()]
        with contextlib.suppress(OSError):
            os.read(self.wake, 4096)
        return of.fileno() in found

    def stay_with(self, run: str, seal: str) -> bool:
        """Until this run is over. True if the inner keeper may keep another one."""
        told: Tuple[Told, List[int]] | None = None
        ended = status = 0
        while True:
            if not ended:
                ended, status = os.waitpid(self.inner, os.WNOHANG)
            message, fds = receive(self.socket, socket.MSG_DONTWAIT)
            if message == FREE:
                return not ended
            if message:
                told = Told(*marshal.loads(message)), fds
                self.make_durable()
            elif ended:
                if status != 0:
                    self.go_on(Keeper(self.home, run, self.umask, seal), told)
                return False
            else:
                self.wait_for(self.socket)

    def make_durable(self) -> None:
        with contextlib.suppress(OSError):
            # The claim must survive a power loss before anything is executed. Done while the inner keeper prepares.
            fsync_directory(self.home.runs)
            self.socket.send(SYNCED)

    def go_on(self, keeper: Keeper, told: Tuple[Told, List[int]] | None) -> None:
        """The inner keeper was killed."""
        try:
            if told is None:  # nothing was executed
                keeper.close_orphaned()
            else:
                keeper.take_over(*told, self.page)
        except BaseException:
            write_traceback(keeper.directory)
            os._exit(1)


class InnerKeeper:
    """The inner one, in a fresh fork of the outer one."""

    def __init__(self, pair: OuterKeeper, outer: socket.socket) -> None:
        self.pair, self.outer = pair, outer

    def keep_runs(self, first: FirstRun) -> NoReturn:
        status = 1
        keeper, document = self.keeper_of(first.run, first.seal), first.document
        try:
            become_subreaper()
            while True:
                keeper.inner(document)
                # An order that was handed over is in no other place.
                keeper.order, keeper.client, document = None, None, {}
                handed = self.next_run() if has_no_child() else b""
                if not handed:
                    break
                run, seal, document = marshal.loads(handed)
                handed = b""
                retitle("%s %s" % (TITLE, run))
                keeper = self.keeper_of(run, seal)
            status = 0
        except BaseException:
            write_traceback(keeper.directory)
        finally:
            os._exit(status)

    def keeper_of(self, run: str, seal: str) -> Keeper:
        return Keeper(self.pair.home, run, self.pair.umask, seal, self.pair.page, self.outer)

    def next_run(self) -> bytes:
        """What the outer keeper hands over; nothing when it ends."""
        signal.set_wakeup_fd(-1)  # the next run's files get the numbers of this one's
        close_all_but({0, 1, 2, self.outer.fileno()})
        retitle(TITLE)
        try:
            self.outer.send(FREE)
        except OSError:
            return b""
        while True:
            handed, locks = receive(self.outer)
            if handed != SYNCED:  # it came too late for the run before
                return handed if locks else b""


def send(to: socket.socket, message: bytes, fds: List[int]) -> None:
    to.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])


def receive_run(of: socket.socket) -> Tuple[bytes, List[int]]:
    """A run that is handed over, and its lock. Without the lock it is nothing: others would take it for a lost one."""
    handed, locks = receive(of)
    return (handed, locks) if locks else (b"", [])


def receive(of: socket.socket, flags: int = 0) -> Tuple[bytes, List[int]]:
    """A message and the descriptors that came with it; nothing where the other end is closed, or nothing is there."""
    fds = array.array("i")
    space = socket.CMSG_SPACE(_FDS * fds.itemsize)
    try:
        data, ancillary, _, _ = of.recvmsg(MAX_MESSAGE, space, flags | socket.MSG_CMSG_CLOEXEC)
    except OSError:
        return b"", []
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    return data, list(fds)
