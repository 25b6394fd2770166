"""The lanes of whole locations in the occupancy, and of all of them together: how many of their GPUs were held.

They stand on sums by the hour (jobs/host_sync/location_hours.py), so that a month of a thousand hosts is read at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import add

from django.utils.translation import gettext as _

from agents.infra.shared_answers import SharedAnswers
from console.presenters.hosts.occupancy_lanes import Lane, area
from console.presenters.hosts.occupancy_window import Window
from jobs.models import LocationHour

HOUR = timedelta(hours=1)
# For how long a web process keeps the hours that it read: a month of them costs more than the rest of a lane.
REREAD = timedelta(minutes=1)
Hours = tuple[tuple[int, datetime, int, float], ...]
_read: SharedAnswers[Hashable, Hours] = SharedAnswers(REREAD, 32)


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    url: str


class _Sum:
    """What was held of one location, or of all, in each step of the window: GPU-seconds, and how many there were."""

    def __init__(self, window: Window) -> None:
        self.held, self.there = [0.0] * window.steps, [0.0] * window.steps
        self.gpus = 0

    def add(self, parts: Sequence[tuple[int, float]], gpus: int, held_s: float) -> None:
        """Add an hour. `parts`: the steps in which it lies, and which part of it."""
        there_s = gpus * HOUR.total_seconds()
        for step, part in parts:
            self.held[step] += part * held_s
            self.there[step] += part * there_s
        self.gpus = gpus

    def add_all(self, other: _Sum) -> None:
        self.held = list(map(add, self.held, other.held))
        self.there = list(map(add, self.there, other.there))
        self.gpus += other.gpus

    def lane(self, place: Place) -> Lane:
        """Its percentage is that of the hours that are summed."""
        percent = min(round(100 * sum(self.held) / max(sum(self.there), 1.0)), 100)
        words = _("{percent} % of {gpus} GPUs held").format(percent=percent, gpus=self.gpus)
        path = area(
            [held / there if there else 0.0 for held, there in zip(self.held, self.there, strict=True)]
        )
        return Lane(place.name, place.url, words, percent, path, (), ())


def sum_lanes(places: Mapping[int, Place], window: Window, everywhere: Place | None) -> tuple[Lane, ...]:
    """A lane for each place with GPUs, and before them one for all together if there are several."""
    parts: dict[datetime, list[tuple[int, float]]] = {}
    sums: dict[int, _Sum] = {}
    for place, start, gpus, held_s in _hours(tuple(places), window):
        if start not in parts:
            parts[start] = list(_parts(start, window))
        if place not in sums:
            sums[place] = _Sum(window)
        sums[place].add(parts[start], gpus, held_s)
    lanes = [sums[place].lane(places[place]) for place in places if place in sums]
    if everywhere and len(sums) > 1:
        together = _Sum(window)
        for each in sums.values():
            together.add_all(each)
        lanes.insert(0, together.lane(everywhere))
    return tuple(lanes)


def _hours(places: tuple[int, ...], window: Window) -> Hours:
    """The hours of the window, from the first to the last."""
    since, until = (at.replace(minute=0, second=0) for at in (window.start, window.end))

    def read() -> Hours:
        rows = LocationHour.objects.filter(
            location__in=places, start__gte=since, start__lte=until, gpus__gt=0
        ).order_by("start")
        return tuple(rows.values_list("location", "start", "gpus", "held_s"))

    return _read.get((places, since, until), read)


def _parts(start: datetime, window: Window) -> Iterator[tuple[int, float]]:
    first, last = window.place(start) * window.steps, window.place(start + HOUR) * window.steps
    whole = HOUR / window.step
    for step in range(int(first), min(int(last) + 1, window.steps)):
        yield step, max(min(last, step + 1) - max(first, step), 0.0) / whole
