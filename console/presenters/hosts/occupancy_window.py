"""The time that the page of the occupancy shows: a day, a week or a month, until now or from a day on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

DAY, WEEK, MONTH = "day", "week", "month"
LENGTHS = {DAY: timedelta(days=1), WEEK: timedelta(days=7), MONTH: timedelta(days=30)}
# Of each length: how long one step of a line is.
STEPS = {DAY: timedelta(minutes=15), WEEK: timedelta(hours=2), MONTH: timedelta(hours=8)}
TICKS = 6


@dataclass(frozen=True, slots=True)
class Window:
    """`first` is empty for the time until now."""

    span: str
    first: str
    start: datetime
    end: datetime
    now: datetime

    @classmethod
    def of(cls, span: str, first: str, now: datetime) -> Window:
        """What is not understood is the last day until now."""
        span = span if span in LENGTHS else DAY
        length = LENGTHS[span]
        try:
            day = date.fromisoformat(first) if len(first) == len("2026-01-01") else None
        except ValueError:
            day = None
        if day is None or not 2000 <= day.year <= now.year + 1 or day > now.date():
            # The end of this minute.
            end = (now + timedelta(seconds=59, microseconds=999_999)).replace(second=0, microsecond=0)
            return cls(span, "", end - length, end, now)
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return cls(span, day.isoformat(), start, start + length, now)

    @property
    def step(self) -> timedelta:
        return STEPS[self.span]

    @property
    def steps(self) -> int:
        return round(LENGTHS[self.span] / STEPS[self.span])

    @property
    def known_until(self) -> datetime:
        """Nothing is known of later."""
        return min(self.end, self.now)

    @property
    def earlier(self) -> str:
        return (self.start - LENGTHS[self.span]).date().isoformat()

    @property
    def later(self) -> str:
        """The first day of the next window; empty where that would be the future."""
        after = self.start + LENGTHS[self.span]
        return after.date().isoformat() if self.first and after <= self.now else ""

    @property
    def ticks(self) -> tuple[datetime, ...]:
        step = LENGTHS[self.span] / TICKS
        return tuple(self.start + step * number for number in range(TICKS + 1))

    def place(self, at: datetime) -> float:
        """Where a moment is: 0 at the start, 1 at the end, and within these."""
        return min(max((at - self.start) / (self.end - self.start), 0.0), 1.0)

    def share(self, since: datetime, until: datetime | None) -> float:
        """Which part of the known time of the window this is."""
        known = (self.known_until - self.start).total_seconds()
        ends = min(until or self.known_until, self.known_until)
        return max((ends - max(since, self.start)).total_seconds(), 0.0) / known if known > 0 else 0.0
