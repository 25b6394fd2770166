"""A trainer's connections to all reducers: one thread sends buckets and receives their means, in turns.

The link belongs to the process that made it. In a forked child (a worker of a DataLoader) it is nothing: its copies
of the sockets are closed there, which the reducers do not see.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, List, Tuple

from agents.runner.reduction.report import Report
from agents.runner.reduction.way import CONNECT_S, Job, ReductionFailed, Way, connect
from agents.runner.reduction.wire import (
    ABOUT,
    BEAT,
    BUCKET,
    CHUNK,
    CHUNK_OF,
    FAILED,
    FRAME,
    GONE,
    GOODBYE,
    LATE,
    LOST,
    MAX_SENTENCE,
    REASON,
    REDUCER_LOST,
    SILENT_S,
    Trainer,
    frame,
)

# A trainer that another one has missed may have left for a lost reducer: then its own connection breaks soon, too.
SETTLE_S = 3.0
# After a reducer has had everything, how much longer than a reducer itself waits for trainers.
BEYOND_S = 5 * 60.0
GOODBYE_S = 2.0
LOOK_S = 1.0
READS = 16


class Link:
    """`on_lost(sentence)` ends the program; it is called in the link's thread. `speaks_for`: for how many processes of
    the replica it reports what has moved."""

    def __init__(
        self,
        addresses: List[Tuple[str, int]],
        trainer: Trainer,
        secret: bytes,
        on_lost: Callable[[str], Any],
        connect_s: float = CONNECT_S,
        speaks_for: int = 1,
    ) -> None:
        self._index, self._on_lost, self._owner = trainer.number, on_lost, os.getpid()
        self.ways = connect(addresses, trainer, secret, on_lost, connect_s)
        self._stuck_s = trainer.patience_s + BEYOND_S
        self._given: Deque[Job] = deque()
        self._error: Exception | None = None
        self._settles: float | None = None
        self._leaving = self._over = self._is_asked = False
        self._lock = threading.Lock()
        self._wake, self._waker = os.pipe()
        for fd in (self._wake, self._waker):
            os.set_blocking(fd, False)
        self._by_fd = {way.connection.fileno(): way for way in self.ways}
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._report, self._speaks_for = Report("trainer"), speaks_for
        self._waited_s = 0.0
        os.register_at_fork(after_in_child=self._in_child)
        self._thread = threading.Thread(target=self._run, name="trainyard-reduction", daemon=True)
        self._thread.start()

    @property
    def is_ours(self) -> bool:
        return os.getpid() == self._owner

    def give(self, job: Job) -> None:
        """Send this bucket. Its `done` is called when all of its means are here, or when there will be none."""
        with self._lock:
            error = self._error
            if error is None:
                self._given.append(job)
        if error is not None:
            job.end(error)
        else:
            self._poke()

    def settle(self) -> None:
        """Something beside us has failed. If that is because of a lost reducer, we lose the same one within moments,
        and the program ends as it does then. Else return."""
        self._is_asked = True
        self._poke()
        until = time.monotonic() + SETTLE_S + GOODBYE_S
        while self._error is None and not self._over and time.monotonic() < until:
            time.sleep(SETTLE_S / 100)
        self._is_asked = False

    def leave(self) -> None:
        """Say goodbye, within a deadline: at a normal end of the program. What is not done then ends with an
        error."""
        if not self.is_ours or self._leaving:
            return
        self._leaving = True
        self._poke()
        self._thread.join(GOODBYE_S)

    def _poke(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._waker, b"w")

    def _in_child(self) -> None:
        if self._over:
            return
        self._over = True
        self._lock = threading.Lock()  # a thread that is not here may have held it
        self._error = ReductionFailed("gradients of a forked child do not go through reducers")
        for way in self.ways:
            way.connection.close()
        for fd in (self._wake, self._waker):
            with contextlib.suppress(OSError):
                os.close(fd)

    # -- the thread --

    def _run(self) -> None:
        try:
            while not self._leaving:
                self._turn(LOOK_S if self._settles is None else SETTLE_S / 20)
            self._say_goodbye()
        except Exception as problem:
            self._fail(ReductionFailed("the reduction stopped: %r" % problem))
        finally:
            self._fail(ReductionFailed("the reduction is over"))
            self._over = True
            for way in self.ways:
                way.connection.close()

    def _turn(self, wait_s: float) -> None:
        """Wait for what can go on, and let it go on."""
        while self._given:
            job = self._given.popleft()
            for way in self.ways:
                way.give(job)
        self._register()
        began, awaited = time.monotonic(), any(way.is_awaited for way in self.ways)
        events = self._poll.poll(wait_s * 1000)
        now = time.monotonic()
        self._waited_s += now - began if awaited else 0.0
        for fd, event in events:
            if fd == self._wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(fd, 4096)
                continue
            way = self._by_fd[fd]
            try:
                if event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    self._read(way)
                if event & select.POLLOUT and not way.lost and not way.told:
                    self._write(way)
            except OSError as problem:
                way.lost = problem.strerror or str(problem)
        self._look(now)

    def _register(self) -> None:
        """Let the kernel wake us for what each connection can go on with."""
        for fd, way in self._by_fd.items():
            mask = select.POLLIN | (select.POLLOUT if way.wants_to_write else 0)
            if way.lost or way.told:
                mask = -1
            if mask != way.mask:
                way.mask = mask
                if mask < 0:
                    self._poll.unregister(fd)
                else:
                    self._poll.register(fd, mask)

    def _look(self, now: float) -> None:
        """Does the program still need a reducer that is lost, or that has given up?"""
        for way in self.ways:
            if (way.is_needed or self._is_asked) and not way.lost and not way.told:
                self._listen(way, now)
        if self._report.is_due(now):
            self._say(now)
        is_needed = self._is_asked or any(way.is_needed for way in self.ways)
        if self._error is not None or not is_needed:
            return
        for way in self.ways:
            if way.lost:
                self._lose("the reducer %s is lost: %s" % (way.name, way.lost))
                return
        told = [way.told for way in self.ways if way.told]
        for code, sentence in told:
            if code == REDUCER_LOST:
                self._lose(sentence)
                return
        if told and (any(code not in (GONE, LATE) for code, _ in told) or self._is_settled(now, len(told))):
            self._fail(ReductionFailed(told[0][1]))

    def _listen(self, way: Way, now: float) -> None:
        """Is this reducer still there, and does it get on?"""
        if now - way.heard > SILENT_S:
            try:
                self._read(way)  # we may have been stopped: what it said then is read first
            except OSError as problem:
                way.lost = problem.strerror or str(problem)
        silent = now - way.heard > SILENT_S
        stuck = way.is_awaited and not way.wants_to_write and now - way.answered > self._stuck_s
        if (silent or stuck) and not way.told:
            way.lost = way.lost or "it does not answer"

    def _is_settled(self, now: float, told: int) -> bool:
        """A trainer is gone. If that is because of a lost reducer, we lose the same one within moments."""
        if self._settles is None:
            self._settles = now + SETTLE_S
        return told == len(self.ways) or now >= self._settles

    def _say(self, now: float) -> None:
        sent, received = sum(way.sent for way in self.ways), sum(way.received for way in self.ways)
        if self._speaks_for:
            received, sent = received * self._speaks_for, sent * self._speaks_for
            self._report.say(now, received, sent, self._waited_s, "trainer_waiting_percent")

    # -- out --

    def _write(self, way: Way) -> None:
        """One chunk: then it is the next reducer's turn."""
        if not way.pending:
            way.pending = self._next_piece(way)
        while way.pending:
            try:
                count = way.connection.sendmsg(way.pending)
            except (BlockingIOError, InterruptedError):
                return
            way.sent += count
            while way.pending and count >= len(way.pending[0]):
                count -= len(way.pending.pop(0))
            if count:
                way.pending[0] = way.pending[0][count:]

    def _next_piece(self, way: Way) -> List[memoryview]:
        if not way.to_send:
            return []
        job = way.to_send[0]
        view = job.views[way.index]
        pieces = []
        if way.sent_of_job < 0:
            about = ABOUT.pack(job.number, len(view), job.kind)
            pieces.append(memoryview(frame(BUCKET, len(about), job.stream, job.flags) + about))
            way.sent_of_job = 0
        piece = view[way.sent_of_job : way.sent_of_job + CHUNK]
        if piece:
            pieces += [memoryview(frame(CHUNK_OF, len(piece), job.stream)), piece]
        way.sent_of_job += len(piece)
        if way.sent_of_job >= len(view):
            way.to_send.popleft()
            way.sent_of_job = -1
            if not view:
                self._is_done_by_one(job)
        return pieces

    # -- in --

    def _read(self, way: Way) -> None:
        for _ in range(READS):
            try:
                count = way.connection.recv_into(way.target[way.filled :])
            except (BlockingIOError, InterruptedError):
                return
            if not count:
                way.lost = "it closed the connection"
                return
            way.heard = time.monotonic()
            way.received += count
            way.filled += count
            if way.filled == len(way.target):
                way.filled = 0
                if not self._take(way):
                    return

    def _take(self, way: Way) -> bool:
        """A whole head, or a whole payload. False where nothing more is to be read now."""
        if way.in_payload:
            way.in_payload = False
            payload, way.target = way.target, memoryview(way.head)
            if way.is_reason:
                sentence = bytes(payload[REASON.size :]).decode("utf-8", "replace")
                way.told = REASON.unpack_from(payload)[0], sentence
                return False
            job = way.awaited[way.stream][0]
            way.answered = time.monotonic()
            way.received_of[way.stream] = way.received_of.get(way.stream, 0) + len(payload)
            if way.received_of[way.stream] == len(job.views[way.index]):
                way.received_of[way.stream] = 0
                self._received_all(way, job)
            return True
        kind, _, way.stream, size = FRAME.unpack(way.head)
        if kind == BEAT and not size:
            way.received -= FRAME.size  # on the page of the job nothing moves
            return True
        way.is_reason = kind == FAILED
        if way.is_reason and REASON.size <= size <= REASON.size + MAX_SENTENCE:
            way.target = memoryview(bytearray(size))
        else:
            awaited = way.awaited.get(way.stream)
            view = awaited[0].views[way.index] if awaited else memoryview(b"")
            begin = way.received_of.get(way.stream, 0)
            if kind != CHUNK_OF or not 0 < size <= len(view) - begin:
                way.lost = "it sent what was not asked for"
                return False
            way.target = view[begin : begin + size]
        way.in_payload = True
        return True

    def _received_all(self, way: Way, job: Job) -> None:
        way.awaited[job.stream].popleft()
        self._is_done_by_one(job)

    def _is_done_by_one(self, job: Job) -> None:
        job.left -= 1
        if not job.left:
            job.end(None)

    # -- ends --

    def _lose(self, sentence: str) -> None:
        """A reducer is lost: tell the others, so that all trainers know what it was, and end the program."""
        text = sentence.encode("utf-8", "replace")[:MAX_SENTENCE]
        self._flush(memoryview(frame(LOST, len(text)) + text))
        self._on_lost(sentence)
        self._fail(ReductionFailed(sentence))

    def _fail(self, error: Exception) -> None:
        """All buckets on their way, and all that come, end with this error."""
        with self._lock:
            self._error = self._error or error
            jobs = list(self._given)
            self._given.clear()
        for way in self.ways:
            jobs += [job for queue in (way.to_send, *way.awaited.values()) for job in queue]
            way.awaited.clear()
            way.to_send.clear()
            way.pending = []
        for job in dict.fromkeys(jobs):
            job.end(self._error)

    def _say_goodbye(self) -> None:
        self._say(time.monotonic())
        if not any(way.wants_to_write or way.is_awaited for way in self.ways):
            self._flush(memoryview(frame(GOODBYE, 0)))

    def _flush(self, last: memoryview) -> None:
        """Send what has begun, and this frame, to all reducers that take it within a moment."""
        until = time.monotonic() + GOODBYE_S / 2
        ways = [way for way in self.ways if not way.lost and not way.told]
        for way in ways:
            way.to_send.clear()
            way.pending.append(last)
        while ways and time.monotonic() < until:
            for way in list(ways):
                try:
                    self._write(way)
                except OSError:
                    way.pending = []
                if not way.pending:
                    ways.remove(way)
            if ways:
                time.sleep(0.005)
