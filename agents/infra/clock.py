"""The clock that code is given instead of a fixed time."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from django.utils import timezone


class Clock:
    """The wall clock, or a clock that starts at the given time and goes on from there.

    Code that reads, decides and writes is given a clock and not a time. On the way it may wait for a lock, try again
    after an error, or be suspended; what it decides must not be dated before the events that led to the decision.
    """

    def __init__(self, now: datetime | None = None) -> None:
        self._start = now
        self._start_monotonic = time.monotonic()

    def now(self) -> datetime:
        if self._start is None:
            return timezone.now()
        return self._start + timedelta(seconds=time.monotonic() - self._start_monotonic)
