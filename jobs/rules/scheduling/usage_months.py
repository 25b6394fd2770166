"""Use over time: intervals into months. Pure; how the memory of it fades is fairness.py's.

Use is held, not busy: from the claim of GPUs and CPUs until it is given back, because nobody else could have them
meanwhile. So a job that hangs is counted until it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

# A claimed CPU counts as this part of a GPU where both are compared in one figure: hosts have about so many for each.
GPUS_OF_A_CPU = 1 / 16


def month_of(when: datetime) -> date:
    """The first day of its month, in UTC."""
    return when.astimezone(UTC).date().replace(day=1)


def month_named(text: str) -> date | None:
    """`2026-11`; None for whatever is no month."""
    if len(text) != 7 or not text.isascii():
        return None
    try:
        month = date.fromisoformat(f"{text}-01")
    except ValueError:
        return None
    return month if 1970 < month.year < 9000 else None


def following(month: date) -> date:
    return (month + timedelta(days=31)).replace(day=1)


def previous(month: date) -> date:
    return (month - timedelta(days=1)).replace(day=1)


def begin(month: date) -> datetime:
    return datetime(month.year, month.month, 1, tzinfo=UTC)


def by_month(began: datetime, ended: datetime) -> Iterator[tuple[date, float]]:
    """The months that an interval touches, with its seconds in each; their sum is its length."""
    month = month_of(began)
    while began < ended:
        border = min(ended, begin(following(month)))
        yield month, (border - began).total_seconds()
        began, month = border, following(month)


def in_month(month: date, began: datetime, ended: datetime) -> float:
    """The seconds of an interval that lie in this month."""
    inside = min(ended, begin(following(month))) - max(began, begin(month))
    return max(0.0, inside.total_seconds())
