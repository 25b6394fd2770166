"""The points of metrics in the database: added, thinned, deleted.

A series keeps at most MOST points. When it has more, about half of them stay, evenly over its steps: a run of a month
has as many rows as one of an hour, and its curve is as fine at its end as at its beginning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from django.db import transaction
from django.db.models import QuerySet

from jobs.models import Job, MetricPoint, MetricSeries, MetricsProof, Run
from jobs.rules.metrics.journal import Report, odd_word
from jobs.rules.metrics.thinning import kept

MOST, FEWER = 2000, 1000
# A runner keeps as many apart; a host that sends more was changed.
MAX_SERIES = 500


def add(run: str, reports: Mapping[tuple[str, str], Sequence[Report]], now: datetime) -> None:
    """Store the reports of one piece, by (name, source)."""
    known = {(row.name, row.source): row for row in MetricSeries.objects.filter(run=run)}
    room = MAX_SERIES - len(known)
    fresh = [key for key in reports if key not in known][: max(room, 0)]
    made = MetricSeries.objects.bulk_create([_new(run, reports[key][0], now) for key in fresh])
    known |= {(row.name, row.source): row for row in made}
    rows: list[MetricPoint] = []
    changed = []
    for key, of_series in reports.items():
        if (series := known.get(key)) is None:
            continue
        chosen = _last_of_each_step(of_series)
        rows += [_point(series, report, now) for report in chosen]
        _note(series, of_series, now)
        series.points += len(chosen)
        changed.append(series)
    MetricPoint.objects.bulk_create(
        rows,
        500,
        update_conflicts=True,
        unique_fields=["series", "step"],
        update_fields=["value", "odd", "at"],
    )
    for series in changed:
        if series.points > MOST:
            thin(series)
    columns = ["reports", "points", "step", "value", "odd", "at", "lowest", "highest"]
    MetricSeries.objects.bulk_update(changed, columns, 200)


def _new(run: str, report: Report, now: datetime) -> MetricSeries:
    return MetricSeries(
        run_id=run, source=report.source, name=report.name, step=report.step, at=time_of(report, now)
    )


def _last_of_each_step(reports: Sequence[Report]) -> list[Report]:
    """In order of their steps, and few: a piece may have thousands."""
    by_step = {report.step: report for report in reports}
    found = [by_step[step] for step in sorted(by_step)]
    return [found[index] for index in kept([(each.step, each.value) for each in found], FEWER)]


def _point(series: MetricSeries, report: Report, now: datetime) -> MetricPoint:
    odd = odd_word(report.value)
    value = None if odd else report.value
    return MetricPoint(series=series, step=report.step, value=value, odd=odd, at=time_of(report, now))


def time_of(report: Report, now: datetime) -> datetime:
    """When it was reported, by the host. No report is of the future."""
    return min(datetime.fromtimestamp(report.at, UTC), now)


def _note(series: MetricSeries, reports: Sequence[Report], now: datetime) -> None:
    """What is known of the whole series."""
    series.reports += len(reports)
    newest = max(reports, key=lambda report: report.step)
    if series.reports == len(reports) or newest.step >= series.step:
        series.step, series.at, series.odd = newest.step, time_of(newest, now), odd_word(newest.value)
        series.value = None if series.odd else newest.value
    numbers = [report.value for report in reports if math.isfinite(report.value)]
    low, high = series.lowest, series.highest
    series.lowest = min([*numbers, *([] if low is None else [low])], default=None)
    series.highest = max([*numbers, *([] if high is None else [high])], default=None)


def thin(series: MetricSeries) -> None:
    """Leave out about half of the points of a series that has too many."""
    rows = list(MetricPoint.objects.filter(series=series).order_by("step").values_list("pk", "step", "value"))
    series.points = len(rows)
    if len(rows) <= MOST:
        return
    points = [(step, math.nan if value is None else value) for _, step, value in rows]
    stay = set(kept(points, FEWER))
    gone = [row[0] for index, row in enumerate(rows) if index not in stay]
    for begin in range(0, len(gone), 500):
        MetricPoint.objects.filter(pk__in=gone[begin : begin + 500]).delete()
    series.points = len(stay)


def give_up(runs: QuerySet[Run]) -> None:
    """Of these runs nothing more will come from their hosts: what is here is kept."""
    coming = runs.filter(metrics_proof="")
    with transaction.atomic():
        # All code locks runs in this order.
        locked = coming.select_for_update(no_key=True, of=("self",)).order_by("pk")
        ids = list(locked.values_list("pk", flat=True))
        coming.filter(pk__in=ids).update(metrics_proof=MetricsProof.CUT)


def purge(job: Job) -> None:
    """Delete what its programs reported. Nobody waits for the rest of it."""
    runs = Run.objects.filter(job=job)
    give_up(runs)
    runs.filter(metrics_read__isnull=False).update(metrics_read=None)
    MetricPoint.objects.filter(series__run__job=job).delete()
    MetricSeries.objects.filter(run__job=job).delete()
