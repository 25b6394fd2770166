"""A trainer's way to one reducer, and the buckets that take it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Tuple

from agents.runner.reduction.wire import BY_SENDERS, EMPTY, FRAME, Trainer, Unfit, greet, tune

CONNECT_S, UNFIT_S, PAUSE_S = 300.0, 30.0, 0.1


class ReductionFailed(RuntimeError):
    """The reduction is over for the whole group; the message says why."""


class Job:
    """One bucket on its way. `views`: by reducer, its part of the bytes, which its mean replaces. `done(error)` is
    called once, and again with the error if the mean could not be taken."""

    def __init__(
        self,
        stream: int,
        number: int,
        kind: int,
        views: List[memoryview],
        done: Callable[[Exception | None], None],
        empty: bool = False,
        by_senders: bool = False,
    ) -> None:
        self.stream, self.number, self.kind, self.views, self.done = stream, number, kind, views, done
        self.flags = (EMPTY if empty else 0) | (BY_SENDERS if by_senders else 0)
        self.left = len(views)
        self.begun = time.monotonic()

    def end(self, error: Exception | None) -> None:
        """Nothing that goes wrong in `done` ends the thread of the link, or leaves a program that waits for ever."""
        try:
            self.done(error)
        except Exception as problem:
            with contextlib.suppress(Exception):
                self.done(ReductionFailed("the mean of a bucket could not be taken: %r" % problem))


class Way:
    """The way to one reducer."""

    def __init__(self, name: str, index: int, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.name, self.index, self.connection = name, index, connection
        self.to_send: Deque[Job] = deque()
        self.sent_of_job = -1
        self.pending: List[memoryview] = []
        self.awaited: Dict[int, Deque[Job]] = {}
        self.received_of: Dict[int, int] = {}
        self.head = bytearray(FRAME.size)
        self.target: memoryview = memoryview(self.head)
        self.stream, self.in_payload, self.is_reason = 0, False, False
        self.filled = self.sent = self.received = 0
        self.heard = self.answered = time.monotonic()
        self.lost = ""
        self.mask = 0
        self.told: Tuple[int, str] | None = None  # why the reducer has given up

    def give(self, job: Job) -> None:
        if not self.is_needed:
            self.heard = self.answered = time.monotonic()  # the silence before is the program's own
        self.to_send.append(job)
        if job.views[self.index]:  # of no bytes there is no mean
            self.awaited.setdefault(job.stream, deque()).append(job)

    @property
    def wants_to_write(self) -> bool:
        return bool(self.pending or self.to_send)

    @property
    def is_awaited(self) -> bool:
        return any(self.awaited.values())

    @property
    def is_needed(self) -> bool:
        """Also for what nothing comes back for."""
        return bool(self.to_send) or self.is_awaited


def connect(
    addresses: List[Tuple[str, int]],
    trainer: Trainer,
    secret: bytes,
    on_lost: Callable[[str], Any],
    connect_s: float,
) -> List[Way]:
    """Ways to all reducers, which may start later than we do. One that never answers is lost; raises
    ReductionFailed for one that is not ours."""
    ways: List[Way] = []
    begun = time.monotonic()
    for host, port in addresses:
        name, why = "%s:%d" % (host, port), ""
        while True:
            now = time.monotonic()
            if now > begun + connect_s:
                on_lost("the reducer %s cannot be reached: %s" % (name, why))
                raise ReductionFailed("the reducer %s cannot be reached: %s" % (name, why))
            try:
                ways.append(_dial(len(ways), (host, port), trainer, secret))
                break
            except Unfit as problem:
                if now > begun + min(UNFIT_S, connect_s):
                    raise ReductionFailed(
                        "what answers as the reducer %s is none of this job: %s" % (name, problem)
                    ) from None
                why = str(problem)
            except OSError as problem:
                why = problem.strerror or str(problem)
            time.sleep(PAUSE_S)
    return ways


def _dial(index: int, address: Tuple[str, int], trainer: Trainer, secret: bytes) -> Way:
    connection = socket.create_connection(address, 5.0)
    try:
        tune(connection)
        greet(connection, trainer, secret, time.monotonic() + 10.0)
        return Way("%s:%d" % address, index, connection)
    except BaseException:
        connection.close()
        raise
