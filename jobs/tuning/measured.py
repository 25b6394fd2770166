"""What the programs of trials reported, as measurements: from the series that their runs have stored.

Only the reports of the primary replica count. Where it has none of a metric, those of the first other replica that has
are taken, and the study's page and the comparison of jobs say of which one. A value that a later run reported at the
same step takes the place of the earlier one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from django.db.models import Q

from agents.infra.sql import Parameter, SelectStatement
from jobs.models import Job, MetricPoint, MetricSeries, Run
from jobs.rules.metrics.journal import LOG
from jobs.rules.tuning.trials import Measurement

# The points of so many series are asked for in one query.
SERIES_AT_ONCE = 500
# So many names are told of a trial that did not report what it should.
MOST_NAMES = 50


@dataclass(frozen=True, slots=True)
class Measured:
    """`measurements` by step. `whole`: nothing more will come."""

    measurements: tuple[Measurement, ...] = ()
    whole: bool = True


NOTHING = Measured()


@dataclass(frozen=True, slots=True)
class Place:
    """Of which replica a series is, and by which way it was reported."""

    pool: int
    index: int
    source: str


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Series:
    pk: int
    name: str
    source: str
    job: int
    pool: int
    index: int


# A step, a value and when it was reported.
_Point = tuple[int, float, datetime]


@dataclass(slots=True)
class _Step:
    elapsed_s: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)


def _is_behind() -> Q:
    """Runs of which something may still come: from their host, or out of their log. Of a host that was declared gone
    nothing is waited for: a study would hang on a machine that is never seen again."""
    gone = Q(declared_lost_at__isnull=False, proved_at=None)
    return (Q(metrics_proof="", forgotten_at=None) | Q(metrics_read__isnull=False)) & ~gone


_behind = SelectStatement(
    lambda: Run.objects.filter(_is_behind(), job__among=Parameter("jobs")).order_by().values_list("job")
)
_of_jobs = SelectStatement(
    lambda: (
        MetricSeries.objects.filter(run__job__among=Parameter("jobs"), name__among=Parameter("names"))
        .order_by("run__job", "name", "run__replica", "run__attempt", "run__number")
        .values_list("pk", "name", "source", "run__job", "run__replica__pool", "run__replica__index")
    )
)
_of_series = SelectStatement(
    lambda: (
        MetricPoint.objects.filter(series__among=Parameter("series"))
        .order_by()
        .values_list("series", "step", "value", "odd", "at")
    )
)


def of_jobs(jobs: Iterable[Job], names: Collection[str]) -> Mapping[int, Measured]:
    """By job: the values of the metrics with these names. A few queries, however many jobs these are."""
    by_id = {job.pk: job for job in jobs}
    if not by_id:
        return {}
    behind = set(_behind.column(jobs=list(by_id)))
    of_job: dict[int, dict[str, list[_Series]]] = defaultdict(lambda: defaultdict(list))
    for row in _of_jobs(jobs=list(by_id), names=list(names)):
        each = _Series(*row)
        of_job[each.job][each.name].append(each)
    counting = {
        pk: [one for series in by_name.values() for one in that_count(series, _place)]
        for pk, by_name in of_job.items()
    }
    points = _points([each.pk for series in counting.values() for each in series])
    return {
        pk: Measured(_measurements(job, counting.get(pk, ()), points), pk not in behind)
        for pk, job in by_id.items()
        if pk in counting or pk in behind
    }


def names_of(job: Job) -> tuple[str, ...]:
    """The names of the metrics that its programs reported, the first of them."""
    found = MetricSeries.objects.filter(run__job=job).order_by("name").values_list("name", flat=True)
    return tuple(found.distinct()[:MOST_NAMES])


def _points(series: Sequence[int]) -> Mapping[int, Sequence[_Point]]:
    found: dict[int, list[_Point]] = defaultdict(list)
    for begin in range(0, len(series), SERIES_AT_ONCE):
        for pk, step, value, odd, at in _of_series(series=series[begin : begin + SERIES_AT_ONCE]):
            found[pk].append((step, float(odd) if value is None else value, at))
    return found


def _measurements(
    job: Job, series: Sequence[_Series], points: Mapping[int, Sequence[_Point]]
) -> tuple[Measurement, ...]:
    steps: dict[int, _Step] = defaultdict(_Step)
    for each in series:
        for number, value, at in points.get(each.pk, ()):
            step = steps[number]
            step.metrics[each.name] = value
            if job.started_at is not None:
                step.elapsed_s = max((at - job.started_at).total_seconds(), 0.0)
    return tuple(Measurement(number, step.metrics, step.elapsed_s) for number, step in sorted(steps.items()))


def that_count(series: Sequence[_T], place: Callable[[_T], Place]) -> list[_T]:
    """Of one metric, the series of one replica and one way to report, in the order of its runs."""
    if not series:
        return []
    first = min(map(place, series), key=lambda one: (one.pool, one.index, one.source == LOG, one.source))
    return [each for each in series if place(each) == first]


def _place(series: _Series) -> Place:
    return Place(series.pool, series.index, series.source)
