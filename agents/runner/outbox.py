"""The frames and log bytes of `serve` that wait until the connection to the console takes them."""

from __future__ import annotations

import collections
import os
import select
import time
from typing import Deque

from agents.runner.wire import Message, WireError, encode


class Hangup(Exception):
    """The connection is over, or this serve must end. Runs go on."""


class Outbox:
    """The output queue: control messages before log frames, never into the middle of one."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._control: Deque[bytes] = collections.deque()
        self._bulk: Deque[bytes] = collections.deque()
        self._current = memoryview(b"")
        self.control_bytes = self.bulk_bytes = 0

    def control(self, data: bytes) -> None:
        self._control.append(data)
        self.control_bytes += len(data)

    def bulk(self, data: bytes) -> None:
        self._bulk.append(data)
        self.bulk_bytes += len(data)

    def waiting(self) -> bool:
        return bool(self._current or self._control or self._bulk)

    def flush(self) -> None:
        while True:
            if not self._current:
                if self._control:
                    self._current = memoryview(self._control.popleft())
                    self.control_bytes -= len(self._current)
                elif self._bulk:
                    self._current = memoryview(self._bulk.popleft())
                    self.bulk_bytes -= len(self._current)
                else:
                    return
            try:
                self._current = self._current[os.write(self.fd, self._current) :]
            except BlockingIOError:
                return
            except OSError as error:
                raise Hangup(str(error)) from None

    def send(self, message: Message) -> None:
        try:
            data = encode(message)
        except (WireError, ValueError) as error:  # somebody has edited the facts by hand
            text = "%s of %s cannot be sent: %s" % (message["t"], message.get("run"), error)
            data = encode({"t": "error", "about": message["t"], "message": text[:500]})
        self.control(data)

    def drain(self) -> None:
        """Give what is queued up to two seconds to leave."""
        until = time.monotonic() + 2
        try:
            while self.waiting() and time.monotonic() < until:
                self.flush()
                select.select([], [self.fd], [], 0.1)
        except (Hangup, OSError):
            pass
