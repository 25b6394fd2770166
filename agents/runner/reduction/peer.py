"""One trainer's connection, as a reducer has it: frames in, frames out, and neither waits for the other."""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from typing import Any, Callable, Deque

from agents.runner.reduction.wire import (
    ABOUT,
    BEAT,
    BEAT_S,
    BUCKET,
    CHUNK_OF,
    FRAME,
    GOODBYE,
    LOST,
    MAX_SENTENCE,
    Trainer,
    frame,
    reason,
)

MAX_CHUNK = 1 << 20
# What one call reads: whatever is there of several chunks.
BUFFER = 64 * 1024
BEAT_FRAME = frame(BEAT, 0)
READS = 4


class Broken(Exception):
    """The connection ended where no frame ends, or brought what is no frame."""


class Peer:
    """`on_frame` gets (peer, kind, flags, stream, payload) of each whole frame."""

    def __init__(
        self, connection: socket.socket, trainer: Trainer, on_frame: Callable[[Any, int, int, int, Any], None]
    ) -> None:
        connection.setblocking(False)
        self.connection, self.trainer, self._on_frame = connection, trainer, on_frame
        self.buffered = self.received = self.sent = 0
        self.said_goodbye = self.ended = self.failing = self.drained = False
        self.lingers_until = 0.0
        self._buffer, self._filled = bytearray(BUFFER), 0
        self._out: Deque[bytes] = deque()
        self._begun = 0
        self.waiting_bytes = 0
        self._beaten = 0.0
        self.is_full = False  # does its connection take nothing more for now?

    @property
    def index(self) -> int:
        return self.trainer.number

    def fileno(self) -> int:
        return self.connection.fileno()

    @property
    def wants_to_write(self) -> bool:
        return bool(self._out) and not self.ended

    # -- in --

    def read(self) -> None:
        """Read what is there. Sets `ended` at the end of the connection; raises Broken and OSError."""
        for _ in range(READS):
            room = len(self._buffer) - self._filled
            try:
                count = self.connection.recv_into(memoryview(self._buffer)[self._filled :])
            except (BlockingIOError, InterruptedError):
                return
            if not count:
                self.ended = True
                if self._filled:
                    raise Broken("its connection broke within a message")
                return
            self.received += count
            self._filled += count
            self._take_frames()
            if self.failing or count < room:  # there was no more
                return

    def _take_frames(self) -> None:
        """Hand on each whole frame, and keep what has come of the next one."""
        begin, view, size = 0, memoryview(self._buffer), 0
        while begin + FRAME.size <= self._filled and not self.failing:
            kind, flags, stream, size = FRAME.unpack_from(view, begin)
            if not _is_of_trainers(kind, size):
                raise Broken("it sent what no trainer sends")
            end = begin + FRAME.size + size
            if end > self._filled:
                break
            self._on_frame(self, kind, flags, stream, bytes(view[begin + FRAME.size : end]))
            begin = end
        rest = bytes(view[begin : self._filled])
        if FRAME.size + size > len(self._buffer):
            self._buffer = bytearray(FRAME.size + MAX_CHUNK)
        self._buffer[: len(rest)] = rest
        self._filled = len(rest)

    def discard(self) -> None:
        """Read and forget: a connection that is closed with unread bytes is reset, and takes our last frame with it."""
        with contextlib.suppress(BlockingIOError, InterruptedError):
            for _ in range(READS):
                if not self.connection.recv(1 << 16):
                    self.ended = True
                    return

    # -- out --

    def send(self, data: bytes) -> None:
        self._out.append(data)
        self.waiting_bytes += len(data)

    def beat(self, now: float) -> None:
        """Let the trainer hear now and then that we are there."""
        if not self._out and not self.failing and now - self._beaten >= BEAT_S:
            self._beaten = now
            self.send(BEAT_FRAME)

    def write(self) -> None:
        """Send what fits. Raises OSError."""
        try:
            while self._out:
                data = self._out[0]
                count = self.connection.send(memoryview(data)[self._begun :])
                self.sent += count if data is not BEAT_FRAME else 0  # on the page of the job nothing moves
                self._begun += count
                if self._begun < len(data):
                    self.is_full = True
                    return
                self._out.popleft()
                self.waiting_bytes -= len(data)
                self._begun = 0
        except (BlockingIOError, InterruptedError):
            self.is_full = True
            return
        self.is_full = False
        if self.failing and not self.drained:
            self.drained = True
            self.connection.shutdown(socket.SHUT_WR)

    def fail(self, code: int, sentence: str, until: float) -> None:
        """Say why it is over. The frame that has begun is sent whole, all others are dropped."""
        if self.failing or self.ended:
            return
        self.failing, self.lingers_until = True, until
        while len(self._out) > (1 if self._begun else 0):
            self._out.pop()
        self.send(reason(code, sentence))

    def close(self) -> None:
        self.ended = True
        self.connection.close()


def _is_of_trainers(kind: int, size: int) -> bool:
    if kind == CHUNK_OF:
        return 0 < size <= MAX_CHUNK
    return (
        size == ABOUT.size
        if kind == BUCKET
        else kind == GOODBYE and not size or kind == LOST and size <= MAX_SENTENCE
    )
