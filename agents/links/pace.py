"""The pace at which one host is shipped to: as fast as it goes without making its small frames wait.

A rate that is right for one network and one processor is too much for another. So a small frame is sent to the host
again and again meanwhile, over the link that its logs come by, and the time until it is answered is compared with the
shortest of late. What logs and shells wait for, the frame waits for as well: a full network, a busy sshd, a busy
process here. When it waits, the pace falls at once; when it does not, the pace grows slowly.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from agents.ssh.put import Rate

# How often the delay is looked at, and how much longer than the shortest it may be.
LOOK_S, TARGET_S = 0.15, 0.02
# The pace at first and at least: a host that is busy for other reasons gets its files all the same.
LEAST_BYTES_S = 4e6
# Until a frame was late for the first time the pace grows fast. After that, one look in eight may find one late.
UP_AT_FIRST, UP, DOWN = 1.5, 1.05, 0.7
# The shortest delay counts for one to two of these: after that, a way that has become longer is not taken for a queue.
WINDOW_S = 30.0
# After so long without a byte, the last delay says nothing of what is sent now.
PAUSE_S = 1.5

# The last round trip to a host in seconds; None if that is not known.
Delay = Callable[[], float | None]


class Pace(Rate):
    """Of one host. `whole` is the rate of all hosts together, which is kept as well."""

    def __init__(self, whole: Rate, delay: Delay) -> None:
        super().__init__(LEAST_BYTES_S)
        self._whole, self._delay = whole, delay
        self._looked_at, self._taken = -LOOK_S, 0
        self._up = UP_AT_FIRST
        self._shortest = Shortest()

    def take(self, size: int) -> None:
        self._whole.take(size)
        now = time.monotonic()
        if now - self._looked_at >= LOOK_S:
            self._look(now)
        self._taken += size
        super().take(size)

    def _look(self, now: float) -> None:
        gap = now - self._looked_at
        real = self._taken / gap
        self._looked_at, self._taken = now, 0
        delay = self._delay()
        if delay is None or gap > PAUSE_S:  # that answer is of before the pause
            return
        if delay - self._shortest.of(delay, now) > TARGET_S:
            # From what is sent really: a pace that is not reached could fall for long without any effect.
            self._bytes_s, self._up = max(LEAST_BYTES_S, min(self._bytes_s, real) * DOWN), UP
        elif 2 * real > self._bytes_s:
            self._bytes_s *= self._up


class Shortest:
    """The shortest delay of the last while."""

    def __init__(self) -> None:
        self._since, self._now, self._before = 0.0, float("inf"), float("inf")

    def of(self, delay: float, now: float) -> float:
        if now - self._since >= WINDOW_S:
            is_old = now - self._since >= 2 * WINDOW_S
            self._before = float("inf") if is_old else self._now
            self._since, self._now = now, float("inf")
        self._now = min(self._now, delay)
        return min(self._now, self._before)
