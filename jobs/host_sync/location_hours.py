"""Sums of the GPUs that runs held, by hour and location. The occupancy of a month reads some thousand of these rows in
place of all runs of the month.

The sweep sums each hour once, when it is over. Its first time after an upgrade it sums three months.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db.models import Count

from agents.models import Gpu, Host, Location
from jobs.host_sync.gpu_hours import HOUR, HOUR_S, SETTLED_AFTER, holdings
from jobs.host_sync.samples import start_of_step
from jobs.models import LocationHour

# Hours before this are not summed any more.
SUMMED_BACK = timedelta(days=92)
KEPT = timedelta(days=400)


def sum_hours(now: datetime) -> None:
    """Write the sums of hours that are over and have none."""
    last = start_of_step(now - SETTLED_AFTER, HOUR_S)
    count = int(SUMMED_BACK / HOUR)
    over = [last - HOUR * back for back in range(count, 0, -1)]
    known = LocationHour.objects.filter(start__gte=over[0]).values_list("start", flat=True).distinct()
    missing = sorted(set(over) - set(known))
    if missing:
        _write(missing)
    LocationHour.objects.filter(start__lt=now - KEPT).delete()


def _write(starts: Sequence[datetime]) -> None:
    held = _held(starts[0], starts[-1] + HOUR)
    counts = Gpu.objects.filter(present=True, host__retired_at=None).order_by().values_list("host__location")
    gpus = dict(counts.annotate(Count("pk")))
    places = list(Location.objects.values_list("pk", flat=True))
    rows = [
        LocationHour(start=start, location_id=place, gpus=gpus.get(place, 0), held_s=held[start, place])
        for start in starts
        for place in places
    ]
    LocationHour.objects.bulk_create(rows, batch_size=1_000, ignore_conflicts=True)


def _held(start: datetime, until: datetime) -> Mapping[tuple[datetime, int], float]:
    """The GPU-seconds that were held in each hour of this time, by hour and location."""
    found: defaultdict[tuple[datetime, int], float] = defaultdict(float)
    places = dict(Host.every.order_by().values_list("pk", "location"))
    for (host, _kind), count, begun, ended in holdings(start, until):
        ends = min(ended, until)
        hour = max(start_of_step(begun, HOUR_S), start)
        while hour < ends:
            seconds = (min(ends, hour + HOUR) - max(begun, hour)).total_seconds()
            found[hour, places[host]] += count * seconds
            hour += HOUR
    return found
