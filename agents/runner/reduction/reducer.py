"""The reducer: the program of workerpool2. It sums the gradients of all trainers, each a share of the whole.

It needs numpy. It never ends by itself: it is stopped with the job, and then serves until the last trainer has left.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from typing import Any, Deque, Dict, Tuple

from agents.runner.reduction.peer import Broken, Peer
from agents.runner.reduction.report import Report
from agents.runner.reduction.session import LINGER_S, Session
from agents.runner.reduction.wire import (
    REFUSED,
    SECRET_VARIABLE,
    TRAINER_SILENT_S,
    Trainer,
    Unfit,
    receive,
    tune,
)

try:
    from agents.runner.reduction.sums import mean

    HAS_NUMPY = True
except ImportError:  # `main` says so in words
    HAS_NUMPY = False

PORT_VARIABLE = "TRAINYARD_REDUCTION_PORT"
GREETING_S, MAX_GREETINGS = 10.0, 64
BIND_S, LOOK_S = 30.0, 1.0
# How often it looks at what only time changes.
CLOCK_S = 0.2
MAX_REMEMBERED = 64
# The whole job is run again after this exit status (128 + SIGABRT).
AGAIN = 134
NO_NUMPY = (
    "reducer: this Python (%s) has no numpy, and a reducer sums with it. Install numpy for it on this host; or name "
    'another Python as the command of workerpool2: "containerSpec": {"command": ["/path/to/python3"]}.'
)


class Reducer:
    """All connections in one thread. Only the greeting of a new one, which may be a stranger's, has a thread of its
    own."""

    def __init__(self, listener: socket.socket, secret: bytes, mean: Any) -> None:
        self._listener, self._secret, self._mean = listener, secret, mean
        self._sessions: Dict[bytes, Session] = {}
        self._of: Dict[int, Tuple[Peer, Session | None]] = {}
        self._greeted: Deque[Tuple[socket.socket, Trainer]] = deque()
        self._greetings = threading.BoundedSemaphore(MAX_GREETINGS)
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._waker, False)
        self._leaving = False
        self._masks: Dict[int, int] = {}
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(listener, select.POLLIN)
        self._report = Report("reducer")
        self._busy_s = 0.0

    def leave(self, *_: object) -> None:
        """End as soon as no trainer is connected."""
        self._leaving = True
        self.wake()

    def wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._waker, b"w")

    def serve(self) -> None:
        due = 0.0
        while not (self._leaving and not self._of and not self._greeted):
            self._register()
            events = self._poll.poll(LOOK_S * 1000)
            woke = time.monotonic()
            for fd, event in events:
                if fd == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(fd, 4096)
                elif fd == self._listener.fileno():
                    self._accept()
                elif fd in self._of:
                    self._serve_peer(fd, event)
            while self._greeted:
                self._join(*self._greeted.popleft())
            for session in self._sessions.values():
                while session.work():
                    self._answer()
            if woke >= due:
                due = woke + CLOCK_S
                self._look_at_clock(woke)
            self._busy_s += time.monotonic() - woke

    def _answer(self) -> None:
        """Send sums at once to whoever can take them, without another turn."""
        ready = [fd for fd, (peer, _) in self._of.items() if peer.wants_to_write and not peer.is_full]
        for fd in ready:
            self._serve_peer(fd, select.POLLOUT)

    def _look_at_clock(self, now: float) -> None:
        for session in self._sessions.values():
            session.look_at_clock()
        self._forget()
        for peer, _ in self._of.values():
            peer.beat(now)
        if self._report.is_due(now):
            self._say(now)

    def _register(self) -> None:
        """Let the kernel wake us for what each connection can go on with."""
        for fd, (peer, session) in self._of.items():
            reads = session is None or peer.failing or session.may_read(peer)
            mask = (select.POLLIN if reads else 0) | (select.POLLOUT if peer.wants_to_write else 0)
            if self._masks.get(fd) != mask:
                self._poll.register(fd, mask)
                self._masks[fd] = mask

    # -- beginnings --

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            if not self._greetings.acquire(blocking=False):
                connection.close()  # strangers: a trainer tries again
                return
            threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        try:
            tune(connection, TRAINER_SILENT_S)
            trainer = receive(connection, self._secret, time.monotonic() + GREETING_S)
            self._greeted.append((connection, trainer))
            self.wake()
        except (OSError, Unfit) as problem:
            with contextlib.suppress(OSError):
                print("reducer: turned away %s: %s" % (connection.getpeername()[0], problem), flush=True)
            connection.close()
        finally:
            self._greetings.release()

    def _join(self, connection: socket.socket, trainer: Trainer) -> None:
        session = self._sessions.get(trainer.session)
        if session is None:
            session = self._sessions[trainer.session] = Session(
                trainer.trainers, self._mean, time.monotonic, trainer.patience_s
            )
        peer = Peer(connection, trainer, session.on_frame)
        refused = session.add(peer)
        if refused:
            peer.fail(REFUSED, refused, time.monotonic() + LINGER_S)
        elif len(session.peers) == session.count:
            print("reducer: all %d trainers are connected" % session.count, flush=True)
        self._of[peer.fileno()] = (peer, None if refused else session)

    # -- what comes and goes --

    def _serve_peer(self, fd: int, event: int) -> None:
        peer, session = self._of[fd]
        why = "has lost its connection"
        try:
            if event & select.POLLOUT:
                peer.write()
            if event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                if peer.failing:
                    peer.discard()
                else:
                    peer.read()
        except Broken as problem:
            peer.ended, why = True, "is lost: %s" % problem
        except OSError as problem:
            peer.ended, why = True, "is lost: %s" % (problem.strerror or problem)
        if peer.ended:
            self._drop(fd, why)

    def _drop(self, fd: int, why: str) -> None:
        peer, session = self._of.pop(fd)
        self._masks.pop(fd, None)
        self._poll.unregister(fd)
        self._report.add(received=peer.received, sent=peer.sent)
        peer.close()
        self._say(time.monotonic())
        if session is not None:
            before = session.failed
            session.leave(peer, why)
            if session.failed and not before:
                print("reducer: %s" % session.failed, flush=True)

    def _forget(self) -> None:
        now = time.monotonic()
        for fd, (peer, _) in list(self._of.items()):
            if peer.failing and now >= peer.lingers_until:
                self._drop(fd, "did not read why it was over")
        over = [name for name, session in self._sessions.items() if not session.peers]
        # A failed one is known a while longer: a trainer that comes late gets its sentence, and waits for nobody.
        for name in [name for name in over if not self._sessions[name].failed] + over[:-MAX_REMEMBERED]:
            self._sessions.pop(name, None)

    def _say(self, now: float) -> None:
        peers = [peer for peer, _ in self._of.values()]
        self._report.say(
            now,
            received=sum(peer.received for peer in peers),
            sent=sum(peer.sent for peer in peers),
            busy_s=self._busy_s,
            name="reducer_idle_percent",
        )


def listen(port: int) -> socket.socket:
    """A listener on all addresses. A port that is still in use may be that of a reducer which is just ending."""
    until = time.monotonic() + BIND_S
    while True:
        listener = _socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if listener.family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind(("::" if listener.family == socket.AF_INET6 else "", port))
            listener.listen(1024)
            listener.setblocking(False)
            return listener
        except OSError:
            listener.close()
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _socket() -> socket.socket:
    """Of both families, or of IPv4 where the kernel knows no other: `has_ipv6` speaks of Python alone."""
    with contextlib.suppress(OSError):
        return socket.socket(socket.AF_INET6)
    return socket.socket(socket.AF_INET)


def main(environment: Any = os.environ) -> int:
    if not HAS_NUMPY:
        print(NO_NUMPY % sys.executable, file=sys.stderr, flush=True)
        return 1
    try:
        reducer = Reducer(
            listen(int(environment[PORT_VARIABLE])), bytes.fromhex(environment[SECRET_VARIABLE]), mean
        )
        signal.signal(signal.SIGTERM, reducer.leave)
        print("reducer: waits for trainers", flush=True)
        reducer.serve()
    except BaseException:
        # Whatever it is, trainers have lost a reducer: not an error of theirs.
        traceback.print_exc()
        return AGAIN
    return 128 + signal.SIGTERM


if __name__ == "__main__":
    sys.exit(main())
