"""How long a small frame to a host and back takes now: one is sent at a time, and one that is late counts already."""

from __future__ import annotations

import threading
from collections.abc import Callable


class RoundTrip:
    """`ping` sends a frame with a number; the host answers with the number. What it answers is not believed: a host
    that lies about its own delay is shipped to faster or more slowly, and nobody else is."""

    def __init__(self, ping: Callable[[int], None]) -> None:
        self._ping = ping
        self._lock = threading.Lock()
        self._last: float | None = None
        self._number, self._sent_at = 0, -1.0

    def look(self, now: float) -> float | None:
        """The newest round trip, or the age of the frame that is under way, if that is longer. Sends the next frame
        when the one before was answered."""
        with self._lock:
            if self._sent_at >= 0:
                age = now - self._sent_at
                return age if self._last is None else max(self._last, age)
            self._number += 1
            self._sent_at = now
            number, last = self._number, self._last
        self._ping(number)
        return last

    def answered(self, number: object, now: float) -> None:
        with self._lock:
            if self._sent_at >= 0 and type(number) is int and number == self._number:
                self._last, self._sent_at = now - self._sent_at, -1.0
