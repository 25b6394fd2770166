"""The use of GPUs over the last day, hour by hour: which share of them jobs held, and how busy they were.

The held share is computed from the facts of runs, as usage is. The busy share comes from samples: the mean over all
GPUs in three minutes of each hour. A GPU that no job held counts as idle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from console.presenters.jobs.charts import path
from jobs.host_sync.samples import STEP, start_of_step
from jobs.models import GpuClaim, RunSample, Usage

HOURS = 24
HOUR = timedelta(hours=1)
SAMPLED_MINUTES = (10, 30, 50)  # minutes of each hour
MINUTE_S, HOUR_S = 60, 3600


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour, in percent of all GPUs. `busy` is None if no sample is kept. The last hour has only begun."""

    start: datetime
    held: int
    busy: int | None


@dataclass(frozen=True, slots=True)
class DayLine:
    """A line of the chart, as SVG path data. `words` say the same to people who do not see the chart."""

    title: str
    words: str
    path: str


@dataclass(frozen=True, slots=True)
class LastDay:
    hours: tuple[Hour, ...]
    lines: tuple[DayLine, ...]


def last_day(gpus: Mapping[str, int], kind: str, now: datetime) -> LastDay | None:
    """Return the last day of the given GPUs (UUID → id). `kind` names their type if they are of one type.

    Makes three queries. Returns None if there is no GPU.
    """
    if not gpus:
        return None
    starts = [start_of_step(now, HOUR_S) - HOUR * back for back in range(HOURS - 1, -1, -1)]
    held = _held_s(set(gpus.values()), kind, starts, now)
    busy = _busy(set(gpus), starts, now)
    hours = tuple(
        Hour(
            start, _percent(held[start], len(gpus) * min(HOUR, now - start).total_seconds()), busy.get(start)
        )
        for start in starts
    )
    of_held = _line("Held by jobs", [(hour.start, hour.held) for hour in hours])
    of_busy = _line("Busy", [(hour.start, hour.busy) for hour in hours if hour.busy is not None])
    return LastDay(hours, tuple(line for line in (of_held, of_busy) if line))


def _line(title: str, points: Sequence[tuple[datetime, int]]) -> DayLine | None:
    if not points:
        return None
    values = [value for _, value in points]
    words = f"{title}: {round(sum(values) / len(values))} % on average, {values[-1]} % in this hour"
    drawn = [(at, float(value)) for at, value in points]
    start = points[-1][0] - HOUR * (HOURS - 1)
    return DayLine(title, words, path(drawn, start, points[-1][0], 100.0, 1.5 * HOUR))


def _held_s(gpus: set[int], kind: str, starts: list[datetime], now: datetime) -> dict[datetime, float]:
    """Return held GPU-seconds by hour. A run holds its GPUs from its placement until it releases them."""
    over = Usage.objects.filter(
        ended_at__gt=starts[0], gpus__gt=0, **({"accelerator_type": kind} if kind else {})
    )
    spans = list(over.order_by().values_list("gpus", "began_at", "ended_at"))
    claims = GpuClaim.objects.filter(released_at=None).values_list("gpu", "run__created_at")
    spans += [(1, begun, now) for gpu, begun in claims if gpu in gpus]
    held: defaultdict[datetime, float] = defaultdict(float)
    for count, begun, end in spans:
        for start in starts[max(0, int((begun - starts[0]) / HOUR)) :]:
            if start >= end:
                break
            held[start] += count * (min(end, start + HOUR) - max(begun, start)).total_seconds()
    return held


def _busy(gpus: set[str], starts: list[datetime], now: datetime) -> dict[datetime, int]:
    moments = [start + timedelta(minutes=minute) for start in starts for minute in SAMPLED_MINUTES]
    moments = [moment for moment in moments if moment < now]
    sums: defaultdict[datetime, float] = defaultdict(float)
    for at, percent in _percents(gpus, moments):
        sums[at] += percent
    hours: dict[datetime, int] = {}
    for start in starts:
        of = [moment for moment in moments if start <= moment < start + HOUR]
        if of and any(moment in sums for moment in of):
            hours[start] = _percent(sum(sums[moment] for moment in of), 100.0 * len(gpus) * len(of))
    return hours


def _percents(gpus: set[str], moments: list[datetime]) -> Iterable[tuple[datetime, float]]:
    """Yield the GPU percentages sampled at the given moments: a minute's mean, or ten seconds within the last hour."""
    fine = [
        Q(step=STEP, at__gte=at, at__lt=at + timedelta(seconds=STEP))
        for at in moments[-len(SAMPLED_MINUTES) * 2 :]
    ]
    asked = Q(step=MINUTE_S, at__in=moments)
    for one in fine:
        asked |= one
    seen: set[tuple[str, datetime]] = set()
    rows = RunSample.objects.filter(asked).order_by().values_list("run", "run__gpu_uuids", "at", "gpus")
    for run, uuids, at, loads in rows.iterator():
        moment = start_of_step(at, MINUTE_S)
        if (run, moment) in seen:
            continue
        seen.add((run, moment))
        for uuid, (percent, _) in zip(uuids, loads, strict=False):
            if uuid in gpus and percent is not None:
                yield moment, percent


def _percent(part: float, whole: float) -> int:
    return min(100, round(100 * part / whole)) if whole > 0 else 0
