"""The use of GPUs over the last day, hour by hour: which share of them jobs held, and how busy they were.

Hours that are over come from their sums (jobs/host_sync/gpu_hours.py), which are added up once a minute for all people
who see the same hosts. The hour that runs now, and hours that the sweep has not summed yet, are read from runs and
samples, once a minute for all pages. A GPU that no job held counts as idle.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Sum
from django.utils.translation import gettext as _

from agents.infra.shared_answers import SharedAnswers
from console.presenters.metrics.charts import path
from jobs.host_sync import gpu_hours
from jobs.host_sync.gpu_hours import HOUR, HourUse, Key
from jobs.models import GpuHour

HOURS = gpu_hours.HOURS
REREAD = timedelta(minutes=1)
# How long a web process keeps what it read of an hour that has no sums yet.
_unsummed: SharedAnswers[datetime, Mapping[Key, HourUse]] = SharedAnswers(REREAD, HOURS)
# And the sums of hours that are over: of a thousand hosts these are 24,000 rows.
_sums: SharedAnswers[Hashable, Mapping[datetime, HourUse]] = SharedAnswers(REREAD, 64)


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


def last_day(
    hosts: Collection[int], kind: str, gpus: int, now: datetime, shared: Hashable = None
) -> LastDay | None:
    """Return the last day of the `gpus` GPUs of these hosts. `kind` names their type if they are of one type.

    Returns None if there is no GPU. `shared`: equal for pages of the same hosts, which then share what is added up.
    """
    if not gpus:
        return None
    starts = gpu_hours.last_hours(now)
    if shared is None:
        use = _summed(hosts, kind, starts)
    else:
        use = dict(_sums.get((shared, kind, starts[-1]), lambda: _summed(hosts, kind, starts)))
    for start in starts:
        if start not in use:
            use[start] = _read(hosts, kind, start, now)
    hours = tuple(_hour(start, use[start], gpus, now) for start in starts)
    of_held = _line(_("Held by jobs"), [(hour.start, hour.held) for hour in hours])
    of_busy = _line(_("Busy"), [(hour.start, hour.busy) for hour in hours if hour.busy is not None])
    return LastDay(hours, tuple(line for line in (of_held, of_busy) if line))


def _hour(start: datetime, use: HourUse, gpus: int, now: datetime) -> Hour:
    held = _percent(use.held_s, gpus * min(HOUR, now - start).total_seconds())
    if use.busy is None:
        return Hour(start, held, None)
    return Hour(start, held, _percent(use.busy, 100.0 * gpus * len(gpu_hours.sampled_moments(start, now))))


def _summed(hosts: Collection[int], kind: str, starts: Sequence[datetime]) -> dict[datetime, HourUse]:
    known = gpu_hours.summed(starts)
    rows = GpuHour.objects.filter(
        start__in=known, host__in=hosts, **({"accelerator_type": kind} if kind else {})
    )
    sums = rows.order_by().values_list("start").annotate(Sum("held_s"), Sum("busy"))
    return dict.fromkeys(known, HourUse()) | {start: HourUse(held_s, busy) for start, held_s, busy in sums}


def _read(hosts: Collection[int], kind: str, start: datetime, now: datetime) -> HourUse:
    here, whole = set(hosts), HourUse()
    for (host, of_kind), use in _unsummed.get(start, lambda: gpu_hours.use_in(start, now)).items():
        if host in here and (not kind or kind == of_kind):
            whole.held_s += use.held_s
            whole.busy = whole.busy if use.busy is None else (whole.busy or 0.0) + use.busy
    return whole


def _line(title: str, points: Sequence[tuple[datetime, int]]) -> DayLine | None:
    if not points:
        return None
    values = [value for _at, value in points]
    words = _("{title}: {mean} % on average, {last} % in this hour").format(
        title=title, mean=round(sum(values) / len(values)), last=values[-1]
    )
    drawn = [(at, float(value)) for at, value in points]
    start = points[-1][0] - HOUR * (HOURS - 1)
    return DayLine(title, words, path(drawn, start, points[-1][0], 100.0, 1.5 * HOUR))


def _percent(part: float, whole: float) -> int:
    return min(100, round(100 * part / whole)) if whole > 0 else 0
