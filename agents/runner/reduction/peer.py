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
BEAT_FRAME = frame(BEAT, 0)
READS = 16


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
        self._head = bytearray(FRAME.size)
        self._kind = self._flags = self._stream = 0
        self._payload: bytearray | None = None
        self._filled = 0
        self._out: Deque[bytes] = deque()
        self._begun = 0
        self.waiting_bytes = 0
        self._beaten = 0.0

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
            target = self._head if self._payload is None else self._payload
            try:
                count = self.connection.recv_into(memoryview(target)[self._filled :])
            except (BlockingIOError, InterruptedError):
                return
            if not count:
                self.ended = True
                if self._filled or self._payload is not None:
                    raise Broken("its connection broke within a message")
                return
            self.received += count
            self._filled += count
            if self._filled == len(target):
                self._filled = 0
                self._take()
            if self.failing:
                return

    def _take(self) -> None:
        if self._payload is None:
            self._kind, self._flags, self._stream, size = FRAME.unpack(self._head)
            fits = {
                BUCKET: size == ABOUT.size,
                CHUNK_OF: 0 < size <= MAX_CHUNK,
                GOODBYE: not size,
                LOST: size <= MAX_SENTENCE,
            }
            if not fits.get(self._kind):
                raise Broken("it sent what no trainer sends")
            if size:
                self._payload = bytearray(size)
                return
        payload, self._payload = self._payload or b"", None
        self._on_frame(self, self._kind, self._flags, self._stream, payload)

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
                    return
                self._out.popleft()
                self.waiting_bytes -= len(data)
                self._begun = 0
        except (BlockingIOError, InterruptedError):
            return
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
