"""Messages over one SSH channel: a reader that never waits for the writer, and a writer that nobody waits for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import paramiko

from agents.infra.failpoints import SENT, failpoint
from agents.links.arrivals import MAX_RAW
from agents.runner.wire import Decoder, Message, encode
from agents.ssh.sockets import CONNECTION_ERRORS

READ_BYTES = 256 * 1024
# Messages that are ready together leave in one write, up to this size: a gang's start orders are one packet.
MAX_BATCH_BYTES = 128 * 1024
# How often the writer looks whether a lease that had run out was renewed.
LEASE_POLL_S = 0.1
# A link is given up when so many bytes wait for a host that reads nothing.
OVERRUN_BYTES = 64 * 1024 * 1024


class Stream:
    """One runner's stdin and stdout as messages.

    The writer asks `may_send` right before each write: a dispatcher that was suspended past its lease must not send
    another word. It waits until it may send again. A lease that was renewed late belonged to nobody else meanwhile, and
    to hang up for it would have every host dialled anew just when there is too much to do.
    """

    def __init__(self, channel: paramiko.Channel, may_send: Callable[[], bool], name: str) -> None:
        self._channel = channel
        self._may_send = may_send
        # Only log frames have a payload.
        self._decoder = Decoder(preface=True, max_payload=MAX_RAW)
        self._unfinished_s = 0.0
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
        """Whether the other end has sent the runner's first line."""
        return self._decoder.greeted

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    def send(self, message: Mapping[str, Any], payload: bytes = b"") -> None:
        """Queue a message. Never waits; after the end of the stream the message is dropped."""
        data = encode(dict(message), payload)
        with self._changed:
            self._waiting.append((str(message["t"]), data))
            self._waiting_bytes += len(data)
            self._changed.notify()
            if self._waiting_bytes > OVERRUN_BYTES:
                # Closing the channel could wait for the host that does not read: the owner of the link does that.
                self.overrun = True

    def frames(self) -> Iterator[list[tuple[Message, bytes]]]:
        """Batches of messages as they arrive, until the stream ends. A WireError ends it too.

        Yields an empty batch while a message is incomplete: over a slow link one message may take longer than the
        link's timeout.
        """
        try:
            while data := self._channel.recv(READ_BYTES):
                self.keep_stderr()
                messages = self._decoder.feed(data)
                if messages or not self._decoder.unfinished:
                    self._unfinished_s = 0.0
                yield messages
        except CONNECTION_ERRORS:
            pass
        finally:
            self.keep_stderr()
            self.close()

    def count_unfinished(self, seconds: float) -> float:
        """Count so much time in which we listened. Returns for how long a message has been incomplete.

        No clock is read here: while this process stood still, a host could not complete a message.
        """
        self._unfinished_s = self._unfinished_s + seconds if self._decoder.unfinished else 0.0
        return self._unfinished_s

    def keep_stderr(self) -> None:
        """Read the runner's stderr, for it shares an SSH window with stdout. The last 4 KiB are kept."""
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
            pass  # the reader sees the same end and reports it
        finally:
            self.close()

    def _allowed(self) -> bool:
        """Wait until sending is allowed. False if the stream ends before that."""
        with self._changed:
            while not self._closed and not self._may_send():
                self._changed.wait(LEASE_POLL_S)
            return not self._closed

    def _next_batch(self) -> list[tuple[str, bytes]]:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            batch: list[tuple[str, bytes]] = []
            size = 0
            while self._waiting and (not batch or size + len(self._waiting[0][1]) <= MAX_BATCH_BYTES):
                batch.append(self._waiting.popleft())
                size += len(batch[-1][1])
            self._waiting_bytes -= size
            return batch
