"""Use over time: intervals into months, and how the memory of use fades. Pure.

Use is held, not busy: from the claim of GPUs and CPUs until it is given back, because nobody else could have them
meanwhile. So a job that hangs is counted until it ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

# A claimed CPU counts as this part of a GPU where both are compared in one figure: hosts have about so many for each.
GPUS_OF_A_CPU = 1 / 16


def month_of(when: datetime) -> date:
    """The first day of its month, in UTC."""
    return when.astimezone(UTC).date().replace(day=1)


def following(month: date) -> date:
    return (month + timedelta(days=31)).replace(day=1)


def before(month: date) -> date:
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


def faded(used: float, at: datetime | None, now: datetime, half_life: timedelta) -> float:
    """What is left of use that was summed up at some time."""
    return used * _left(now - at, half_life) if at is not None else 0.0


def remembered(rate: float, began: datetime, ended: datetime, now: datetime, half_life: timedelta) -> float:
    """What is left now of `rate` a second from `began` to `ended`: each second fades by itself."""
    ended = min(ended, now)
    if began >= ended:
        return 0.0
    mean_life_s = half_life.total_seconds() / math.log(2)
    return rate * mean_life_s * (_left(now - ended, half_life) - _left(now - began, half_life))


def _left(age: timedelta, half_life: timedelta) -> float:
    return math.exp2(-max(0.0, age / half_life))
