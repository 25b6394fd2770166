"""The clock of Trainyard, which nobody can set, and the clock that code is given instead of a fixed time.

The clock of a machine shows the date, and somebody may set it. The time that passed since the machine was started
cannot be set. `now` is that time plus an offset: the same offset in all processes of a machine, kept in the database
(agents/clock_keeper.py). So a clock that is set changes nothing here, and the processes agree on the time.

`install` makes it the clock of Django too: `timezone.now` is what all code of ours and Django's sessions ask.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils import timezone


def elapsed() -> float:
    """Seconds since this machine was started, sleep included. For durations and deadlines inside one process."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def date_clock() -> float:
    """What the machine's own clock shows, which somebody may set. Only for comparing it with `now`."""
    return time.time()


@dataclass(slots=True)
class _Offset:
    """What this process knows about Trainyard's time."""

    seconds: float
    unsure_since: datetime | None = None
    # The database was asked for the offset, and has not answered yet.
    missing: bool = False


# Until the clock keeper has read the offset from the database, the time is what the machine showed at first.
_offset = _Offset(date_clock() - elapsed())


def now() -> datetime:
    """Trainyard's time."""
    return datetime.fromtimestamp(_offset.seconds + elapsed(), UTC)


def unsure_since() -> datetime | None:
    """Since when the time is trusted without gap. Times before it may be further away, or nearer, than they look.

    None while the clock keeper has not read it. It is later than the first start if no process was alive while a
    machine was restarted: the time of the restart is then what its clock shows, right or wrong.
    """
    return _offset.unsure_since


def follow(seconds: float, unsure: datetime | None) -> None:
    """From now on the time is `elapsed` plus these seconds. Only the clock keeper calls this."""
    _offset.seconds, _offset.unsure_since = seconds, unsure
    _offset.missing = False


def distrust() -> None:
    """Say that the time is not known: this machine's clock is all that there is, and it may be wrong."""
    _offset.missing = True


def is_known() -> bool:
    """Whether something may be dated now. False only between `distrust` and the first `follow` after it."""
    return not _offset.missing


def install() -> None:
    """Make it the clock of Django and of all code that asks `timezone.now`."""
    timezone.now = now


class Clock:
    """Trainyard's clock, or a clock that starts at the given time and goes on from there.

    Code that reads, decides and writes is given a clock and not a time. On the way it may wait for a lock, try again
    after an error, or be suspended; what it decides must not be dated before the events that led to the decision.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start
        self._started = elapsed()

    def now(self) -> datetime:
        if self._start is None:
            return now()
        return self._start + timedelta(seconds=elapsed() - self._started)
