"""Messages over one SSH channel: a reader that never waits for the writer, and a writer that nobody waits for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import paramiko

from agents.infra.failpoints import SENT, failpoint
from agents.runner.wire import Decoder, Message, encode
from agents.ssh.sockets import CONNECTION_ERRORS

READ_BYTES = 256 * 1024
# Messages that are ready together leave in one write, up to this size: a gang's start orders are one packet.
JOIN_BYTES = 128 * 1024
# How soon it is seen that a lease which had run out was renewed.
LAPSE_LOOK_S = 0.1
# A host that takes nothing for so long that this much waits for it is not spoken to any more.
MAX_WAITING = 64 * 1024 * 1024


class Stream:
    """One runner's stdin and stdout as messages.

    `may_send` is asked right before each write: a dispatcher that slept past its lease must not say another word. It
    waits until it may again. A lease that is renewed late was nobody else's meanwhile, and to hang up for it would have
    every host dialled anew just when there is too much to do.
    """

    def __init__(self, channel: paramiko.Channel, may_send: Callable[[], bool], name: str) -> None:
        self._channel = channel
        self._may_send = may_send
        self._decoder = Decoder(preface=True)
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._closed = False
        self.stderr = b""
        self.overrun = False
        self._writer = threading.Thread(target=self._write, name=f"write {name}", daemon=True)
        self._writer.start()

    @property
    def greeted(self) -> bool:
        """Whether the other end has said that it is a runner."""
        return self._decoder.greeted

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    def send(self, message: Mapping[str, Any], payload: bytes = b"") -> None:
        """Queue a message. Never waits; after the end of the stream it goes nowhere."""
        data = encode(dict(message), payload)
        with self._changed:
            self._waiting.append((str(message["t"]), data))
            self._waiting_bytes += len(data)
            self._changed.notify()
            if self._waiting_bytes > MAX_WAITING:
                # Closing the channel could wait for the very host that does not listen: the link's owner does that.
                self.overrun = True

    def frames(self) -> Iterator[list[tuple[Message, bytes]]]:
        """Batches of messages as they arrive, until the stream ends. A WireError is the end too.

        An empty one while a message is on its way: over a slow link that may take longer than a silence is borne.
        """
        try:
            while data := self._channel.recv(READ_BYTES):
                self.keep_stderr()
                yield self._decoder.feed(data)
        except CONNECTION_ERRORS:
            pass
        finally:
            self.keep_stderr()
            self.close()

    def keep_stderr(self) -> None:
        """What the runner's stderr says shares a window with its stdout, so it has to be taken out."""
        try:
            while self._channel.recv_stderr_ready():
                data = self._channel.recv_stderr(65536)
                if not data:
                    return
                self.stderr = (self.stderr + data)[-4096:]
        except CONNECTION_ERRORS:
            pass

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._waiting_bytes = 0
            self._changed.notify()
        with suppress(*CONNECTION_ERRORS):
            self._channel.close()

    def _write(self) -> None:
        try:
            while batch := self._next_batch():
                kinds = [kind for kind, _ in batch if kind in SENT]
                for kind in kinds:
                    failpoint(f"send.{kind}.before")
                if not self._allowed():
                    return
                self._channel.sendall(b"".join(data for _, data in batch))
                for kind in kinds:
                    failpoint(f"send.{kind}.after")
        except CONNECTION_ERRORS:
            pass  # the reader sees the same end and tells it
        finally:
            self.close()

    def _allowed(self) -> bool:
        """Wait until a word may be said. False if the stream ends before that."""
        with self._changed:
            while not self._closed and not self._may_send():
                self._changed.wait(LAPSE_LOOK_S)
            return not self._closed

    def _next_batch(self) -> list[tuple[str, bytes]]:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            batch: list[tuple[str, bytes]] = []
            size = 0
            while self._waiting and (not batch or size + len(self._waiting[0][1]) <= JOIN_BYTES):
                batch.append(self._waiting.popleft())
                size += len(batch[-1][1])
            self._waiting_bytes -= size
            return batch
