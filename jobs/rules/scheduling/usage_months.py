"""Usage by month: splits intervals into months. Pure; how use decays is in fairness.py.

Usage counts from the claim of GPUs and CPUs until they are given back, whether they are used or not, because no other
job could have them meanwhile. So a job that hangs is counted until it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

# Where GPUs and CPUs are added up, a claimed CPU counts as this part of a GPU: hosts have about 16 CPUs for each GPU.
GPUS_OF_A_CPU = 1 / 16


def month_of(when: datetime) -> date:
    """The first day of the month, in UTC."""
    return when.astimezone(UTC).date().replace(day=1)


def month_named(text: str) -> date | None:
    """The month named by `2026-11`; None for any other text."""
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
