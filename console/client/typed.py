"""What was typed, by offset. The host counts what it has taken; what lies behind that is kept here, over lost
connections, and sent again. The host drops what it gets twice: so no key is lost, and none typed twice."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

PIECE = 16 * 1024
# The most bytes that were sent and not taken yet, and that wait. A longer paste is not taken.
AHEAD, MOST = 192 * 1024, 2 * 1024 * 1024


class Typed:
    def __init__(self) -> None:
        self.client = secrets.token_hex(16)
        # What the host has taken; what was sent over this connection; what was ever sent.
        self.taken = self.sent = self.offered = 0
        self._kept = b""
        # When the oldest byte was typed that was never sent.
        self.since = 0.0
        self._send: Callable[[bytes], None] | None = None

    @property
    def end(self) -> int:
        return self.taken + len(self._kept)

    @property
    def unsent(self) -> bytes:
        """What was never sent."""
        return self._kept[max(self.offered - self.taken, 0) :]

    def type(self, data: bytes) -> bool:
        """Take what was typed. False if there is no room for it."""
        if len(self._kept) + len(data) > MOST:
            return False
        if not self.unsent:
            self.since = time.monotonic()
        self._kept += data
        self._pour()
        return True

    def forget_unsent(self) -> None:
        """Forget what was never sent. What was sent may have been taken: it stays."""
        self._kept = self._kept[: max(self.offered - self.taken, 0)]

    def connected(self, taken: int) -> None:
        """A new connection is open, and the host has taken so much of this client."""
        self.took(taken)
        self.sent = self.taken

    def flow(self, send: Callable[[bytes], None]) -> None:
        """Send what waits, and what will be typed."""
        self._send = send
        self._pour()

    def hold(self) -> None:
        self._send = None

    def took(self, taken: int) -> None:
        if taken > self.taken:
            self._kept = self._kept[taken - self.taken :]
            self.taken = taken
        self._pour()

    def _pour(self) -> None:
        while self._send is not None and self.sent < self.end and self.sent - self.taken < AHEAD:
            begin = self.sent - self.taken
            piece = self._kept[begin : begin + PIECE]
            self.sent += len(piece)
            self.offered = max(self.offered, self.sent)
            self._send(piece)
