"""Sums of the use of GPUs by hour, host and type: which share of the time jobs held them, and how busy they were.

The sweep sums each hour once, when it is over. A page then reads some thousand rows in place of all samples of a day.
The held time follows from the facts of runs, as usage does. How busy GPUs were follows from samples: from three minutes
of each hour.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Q
from django.db.models.functions import Coalesce

from agents.models import Gpu
from jobs.host_sync.samples import STEP, start_of_step
from jobs.models import GpuClaim, GpuHour, RunSample, Usage

HOURS = 24
HOUR = timedelta(hours=1)
SAMPLED_MINUTES = (10, 30, 50)  # minutes of each hour
MINUTE_S, HOUR_S = 60, 3600
# Reports come with some delay: an hour is summed this long after its end.
SETTLED_AFTER = timedelta(minutes=3)
KEPT = timedelta(hours=2 * HOURS)

Key = tuple[int, str]  # machine, accelerator type
# With a login for each project, the host of a run is the row of that login.
MACHINE = Coalesce("run__host__machine", "run__host")


@dataclass(slots=True)
class HourUse:
    """What was used of the GPUs of one type on one host. `busy`: the sum of percents; None if there is no sample."""

    held_s: float = 0.0
    busy: float | None = None


def last_hours(now: datetime) -> list[datetime]:
    """The starts of the last 24 hours, the one that runs now included."""
    return [start_of_step(now, HOUR_S) - HOUR * back for back in range(HOURS - 1, -1, -1)]


def sum_hours(now: datetime) -> None:
    """Write the sums of the hours that are over and have none yet. Forget the sums that no page shows any more."""
    over = [start for start in last_hours(now) if start + HOUR + SETTLED_AFTER <= now]
    for start in sorted(set(over) - summed(over), reverse=True):
        rows = [
            GpuHour(start=start, host_id=host, accelerator_type=kind, held_s=use.held_s, busy=use.busy)
            for (host, kind), use in use_in(start, now).items()
        ]
        GpuHour.objects.bulk_create(rows, batch_size=1_000, ignore_conflicts=True)
    GpuHour.objects.filter(start__lt=now - KEPT).delete()


def summed(starts: Iterable[datetime]) -> set[datetime]:
    return set(GpuHour.objects.filter(start__in=list(starts)).values_list("start", flat=True).distinct())


def use_in(start: datetime, now: datetime) -> Mapping[Key, HourUse]:
    """The use in the hour that begins at `start`, up to now, read from the facts and samples of its runs."""
    found: defaultdict[Key, HourUse] = defaultdict(HourUse)
    until = min(now, start + HOUR)
    for key, count, begun, ended in holdings(start, until):
        seconds = (min(ended, until) - max(begun, start)).total_seconds()
        if seconds > 0:
            found[key].held_s += count * seconds
    for key, percent in _percents(sampled_moments(start, now)):
        found[key].busy = (found[key].busy or 0.0) + percent
    return found


def sampled_moments(start: datetime, now: datetime) -> list[datetime]:
    moments = [start + timedelta(minutes=minute) for minute in SAMPLED_MINUTES]
    return [moment for moment in moments if moment < now]


def holdings(start: datetime, until: datetime) -> Iterable[tuple[Key, int, datetime, datetime]]:
    """Yield what runs held. Live claims are read first: a run that ends meanwhile is then in the usage as well, and
    counts once.
    """
    # A claim is released with its run. `run__released_at` is here for its index: else all runs of the past are read.
    held = {"released_at": None, "run__released_at": None}
    claims = GpuClaim.objects.filter(**held, run__created_at__lt=until).order_by()
    kinds = claims.values_list("run", "gpu__host", "gpu__accelerator_type", "run__created_at")
    live = {
        run: ((host, kind), count, begun, until)
        for run, host, kind, begun, count in kinds.annotate(Count("pk"))
    }
    over = Usage.objects.filter(ended_at__gt=start, began_at__lt=until, gpus__gt=0).order_by()
    for run, host, kind, count, begun, ended in over.values_list(
        "run", MACHINE, "accelerator_type", "gpus", "began_at", "ended_at"
    ).iterator():
        live.pop(run, None)
        yield (host, kind), count, begun, ended
    yield from live.values()


def _percents(moments: list[datetime]) -> Iterable[tuple[Key, float]]:
    """Yield the percents of each GPU at the given moments: a minute's mean, or ten seconds of the last hour."""
    if not moments:
        return
    kinds = dict(Gpu.objects.order_by().values_list("uuid", "accelerator_type"))
    asked = Q(step=MINUTE_S, at__in=moments)
    for at in moments:
        asked |= Q(step=STEP, at__gte=at, at__lt=at + timedelta(seconds=STEP))
    seen: set[tuple[str, datetime]] = set()
    rows = (
        RunSample.objects.filter(asked).order_by().values_list("run", MACHINE, "run__gpu_uuids", "at", "gpus")
    )
    for run, host, uuids, at, loads in rows.iterator():
        moment = start_of_step(at, MINUTE_S)
        if (run, moment) not in seen:
            seen.add((run, moment))
            for uuid, (percent, _) in zip(uuids, loads, strict=False):
                if percent is not None:
                    yield (host, kinds.get(uuid, "")), percent
