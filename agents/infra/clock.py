"""A time that goes on."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from django.utils import timezone


class Clock:
    """The wall's, or one that goes on from the time that was given.

    Whoever reads, decides and writes is handed a clock and no time: on the way it may wait for a lock, ask again after
    an error, or be made to stand still, and what it decides must not be dated before what it followed from.
    """

    def __init__(self, now: datetime | None = None) -> None:
        self._began_at = now
        self._began = time.monotonic()

    def now(self) -> datetime:
        if self._began_at is None:
            return timezone.now()
        return self._began_at + timedelta(seconds=time.monotonic() - self._began)
