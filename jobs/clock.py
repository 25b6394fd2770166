"""A given time that goes on."""

from __future__ import annotations

import time
from datetime import datetime, timedelta


class Clock:
    """Starts at the time that was given and goes on: nothing is dated back over a lock that was waited for."""

    def __init__(self, now: datetime) -> None:
        self._began_at = now
        self._began = time.monotonic()

    def now(self) -> datetime:
        return self._began_at + timedelta(seconds=time.monotonic() - self._began)
