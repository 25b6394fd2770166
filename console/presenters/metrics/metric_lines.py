"""The lines of charts, made of samples: which metrics there are, and how samples become points. Pure.

A line has one value for each step of time. Where nothing is known it has None, which a chart shows as a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.utils.translation import gettext_noop

from jobs.rules.lifecycle.utilization import of_all_gpus

# More points cannot be seen in a chart.
POINTS = 240
# How long one point stands for, in seconds. A run is sampled every ten seconds, not to the second.
STEPS = (15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400, 604800)
# How much of the job's life is shown, counted from its newest sample; None for all of it.
SPANS: Mapping[str, timedelta | None] = {"hour": timedelta(hours=1), "day": timedelta(days=1), "all": None}
# What the newest samples stand for (jobs/host_sync/samples.py).
SAMPLE_S = 10

Value = float | int | None
Key = tuple[str, str, int | None]
_Place = tuple[list[Value], list[int], "Join"]
# A replica, a second since 1970, how many seconds the sample stands for, and its values.
Row = tuple[str, int, int, Sequence[Value]]


class Unit(StrEnum):
    PERCENT = "percent"
    MEBIBYTES = "MiB"
    WATTS = "W"
    CELSIUS = "°C"
    CORES = "CPUs"
    BYTES_PER_SECOND = "B/s"


class Join(StrEnum):
    """How several values become one."""

    MEAN = "mean"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True, slots=True)
class Metric:
    """`join`: of the samples of one step. `of_host`: it is that of the whole host on which the replica runs."""

    name: str
    title: str
    unit: Unit
    join: Join = Join.MEAN
    of_host: bool = False


METRICS = (
    Metric("gpuUtilization", gettext_noop("GPU"), Unit.PERCENT),
    Metric("gpuMemory", gettext_noop("GPU memory"), Unit.MEBIBYTES, Join.MAX),
    Metric("gpuPower", gettext_noop("GPU power"), Unit.WATTS),
    Metric("gpuTemperature", gettext_noop("GPU temperature"), Unit.CELSIUS, Join.MAX),
    Metric("cpu", gettext_noop("CPU"), Unit.CORES),
    Metric("memory", gettext_noop("Memory"), Unit.MEBIBYTES, Join.MAX),
    Metric("networkReceive", gettext_noop("Network in, of its host"), Unit.BYTES_PER_SECOND, of_host=True),
    Metric("networkSend", gettext_noop("Network out, of its host"), Unit.BYTES_PER_SECOND, of_host=True),
    Metric("diskRead", gettext_noop("Disk read, of its host"), Unit.BYTES_PER_SECOND, of_host=True),
    Metric("diskWrite", gettext_noop("Disk written, of its host"), Unit.BYTES_PER_SECOND, of_host=True),
    Metric("diskFree", gettext_noop("Disk free, of its host"), Unit.MEBIBYTES, Join.MIN, of_host=True),
)
BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
# In the order of a sample's values of one GPU, and of jobs/rules/lifecycle/utilization.py:AllGpus.
OF_GPUS = ("gpuUtilization", "gpuMemory", "gpuPower", "gpuTemperature")


@dataclass(frozen=True, slots=True)
class Span:
    """`count` steps of `step` seconds from `start` on, in seconds since 1970. `start` is a multiple of `step`."""

    start: int
    step: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.step * self.count

    @classmethod
    def of(cls, start: datetime, end: datetime, step: int) -> Span:
        first = int(start.timestamp()) // step * step
        return cls(first, step, max(1, -(-int(end.timestamp() - first) // step)))


@dataclass(frozen=True, slots=True)
class Sample:
    """What a replica used at a moment. `gpus`: the values of each GPU, or nothing where `values` has those of all."""

    at: float
    seconds: int
    replica: str
    gpus: Sequence[tuple[Value, Value, Value, Value]]
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Line:
    """`replica` and `gpu` say of what; a band has the name min, median or max instead."""

    name: str
    replica: str
    gpu: int | None
    values: list[Value]


def step_for(seconds: float, least: int = 0, points: int = POINTS) -> int:
    """The smallest step with which so long a time has at most so many points."""
    for step in STEPS:
        if step >= least and seconds / step <= points:
            return step
    return STEPS[-1]


class Grid:
    """Collects samples into lines. `by_gpu`: a line for each GPU, else one for all GPUs of a replica."""

    def __init__(self, span: Span, by_gpu: bool) -> None:
        self._span, self.by_gpu = span, by_gpu
        self._lines: dict[Key, list[Value]] = {}
        # How many samples each value of a line stands for, and how they are joined.
        self._places: dict[Key, _Place] = {}

    def add(self, samples: Iterable[Sample]) -> None:
        known = self._places
        key: Key
        for sample in samples:
            steps = self._steps(sample)
            if not steps:
                continue
            replica = sample.replica
            for name, value in sample.values.items():
                if value is not None:
                    key = (name, replica, None)
                    _put(known.get(key) or self._place(key), steps, value)
            for key, value in self._of_gpus(sample):
                if value is not None:
                    _put(known.get(key) or self._place(key), steps, value)

    def add_rows(self, names: Sequence[str], rows: Iterable[Row]) -> None:
        """Samples of many replicas, whose values are in the order of `names`. Half the work of `add`."""
        start, step, count = self._span.start, self._span.step, self._span.count
        known: dict[str, list[_Place]] = {}
        for replica, at, seconds, values in rows:
            places = known.get(replica)
            if places is None:
                places = known[replica] = [self._place((name, replica, None)) for name in names]
            first = (at - start) // step
            if seconds > step:
                last = (at + seconds - 1 - start) // step
                steps = range(max(first, 0), min(last + 1, count))
                for place, value in zip(places, values, strict=True):
                    if value is not None:
                        _put(place, steps, value)
            elif 0 <= first < count:
                for place, value in zip(places, values, strict=True):
                    if value is None:
                        continue
                    if place[0][first] is None:
                        place[0][first], place[1][first] = value, 1
                    else:
                        _put(place, (first,), value)
        self._forget_empty()

    def _forget_empty(self) -> None:
        """What no sample has told is no line."""
        for key in [key for key, (_, counts, _) in self._places.items() if not any(counts)]:
            del self._places[key], self._lines[key]

    def _steps(self, sample: Sample) -> Sequence[int]:
        """The steps in which the sample lies. A sample of a minute or longer stands for all steps within it."""
        start, step = self._span.start, self._span.step
        first = int((sample.at - start) // step)
        if sample.seconds <= step:
            return (first,) if 0 <= first < self._span.count else ()
        last = int((sample.at + sample.seconds - 1 - start) // step)
        return range(max(first, 0), min(last + 1, self._span.count))

    def _of_gpus(self, sample: Sample) -> Iterator[tuple[Key, Value]]:
        """The values of each GPU, or of all as one where they are not among the sample's own values."""
        if not sample.gpus:
            return
        if self.by_gpu:
            for index, gpu in enumerate(sample.gpus):
                yield from (((name, sample.replica, index), gpu[at]) for at, name in enumerate(OF_GPUS))
        else:
            _, _, watts, degrees = zip(*sample.gpus, strict=True)
            for name, value in zip(OF_GPUS, of_all_gpus(sample.gpus, watts, degrees), strict=True):
                yield (name, sample.replica, None), value

    def _place(self, key: Key) -> _Place:
        self._lines[key] = [None] * self._span.count
        place = self._places[key] = (self._lines[key], [0] * self._span.count, BY_NAME[key[0]].join)
        return place

    def lines(self, metric: Metric) -> list[Line]:
        """A line for each replica, or for each of its GPUs, in their order."""
        found = sorted((key for key in self._lines if key[0] == metric.name), key=lambda key: key[2] or 0)
        return [
            Line(
                name=key[1] if key[2] is None else f"{key[1]} GPU {key[2]}",
                replica=key[1],
                gpu=key[2],
                values=[rounded(value, metric.unit) for value in self._lines[key]],
            )
            for key in found
        ]

    def bands(self, metric: Metric) -> list[Line]:
        """The smallest, the middle and the largest value of all replicas, step by step."""
        lines = [line for key, line in self._lines.items() if key[0] == metric.name]
        if not lines:
            return []
        columns = [
            sorted(value for value in column if value is not None) for column in zip(*lines, strict=True)
        ]
        return [
            Line(name, "", None, [rounded(pick(of), metric.unit) if of else None for of in columns])
            for name, pick in BANDS.items()
        ]


def _put(place: _Place, steps: Sequence[int], value: float) -> None:
    line, counts, join = place
    for at in steps:
        before = line[at]
        counts[at] += 1
        if before is None:
            line[at] = value
        elif join is Join.MEAN:
            line[at] = before + (value - before) / counts[at]
        else:
            line[at] = max(before, value) if join is Join.MAX else min(before, value)


def _median(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


BANDS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": lambda ordered: ordered[0],
    "median": _median,
    "max": lambda ordered: ordered[-1],
}


def rounded(value: Value, unit: Unit) -> Value:
    """No more digits than a chart can show: the answer is a third of the size."""
    if value is None:
        return None
    if unit is Unit.CORES:
        return round(value, 2)
    if unit is Unit.BYTES_PER_SECOND and value >= 1000:
        digits = len(str(int(value))) - 3
        return round(int(value), -digits)
    return round(value)
