"""Read what programs reported, by constant numbers of queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Count, Max, QuerySet, Sum

from jobs.models import MetricPoint, MetricSeries, Run

# What a page or an answer shows at most. The later names are left out.
MOST_SERIES = 5_000


def series_of(runs: QuerySet[Run], name: str = "", source: str = "") -> list[MetricSeries]:
    """The series of these runs, by name; those of a replica in the order of its runs."""
    rows = MetricSeries.objects.filter(run__in=runs).select_related("run__replica")
    rows = rows.defer("run__order", "run__log_proof")
    if name:
        rows = rows.filter(name=name)
    if source:
        rows = rows.filter(source=source)
    order = ("name", "source", "run__replica", "run__attempt", "run__number")
    return list(rows.order_by(*order)[:MOST_SERIES])


def points_of(series: Sequence[MetricSeries], most: int) -> tuple[dict[int, list[MetricPoint]], bool]:
    """(the points by series, in the order of their steps; whether some were left out, those of the last series)."""
    chosen: list[int] = []
    count = 0
    for each in series:
        count += each.points
        if count > most and chosen:
            break
        chosen.append(each.pk)
    found: dict[int, list[MetricPoint]] = {}
    for begin in range(0, len(chosen), 500):
        rows = MetricPoint.objects.filter(series__in=chosen[begin : begin + 500]).order_by("series", "step")
        for row in rows:
            found.setdefault(row.series_id, []).append(row)
    return found, len(chosen) < len(series)


def stamp(job_id: int) -> tuple[Any, ...]:
    """Changes whenever something was reported."""
    found = MetricSeries.objects.filter(run__job=job_id).aggregate(Count("pk"), Sum("reports"), Max("at"))
    return tuple(found.values())
