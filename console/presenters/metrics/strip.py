"""What a job used in the last minutes, as small lines at the top of its page: they tell whether it trains.

One query, which reads a bounded number of samples: the more replicas, the shorter the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Avg, Min
from django.utils.translation import gettext
from django.utils.translation import gettext as _

from console.presenters.metrics.charts import path
from console.presenters.metrics.metric_lines import BY_NAME, SAMPLE_S, Unit
from console.presenters.metrics.metrics import Epoch
from console.presenters.metrics.metrics_page import in_words
from jobs.models import Job, RunSample

MINUTE_S = 60
LONGEST_MIN, SHORTEST_MIN = 60, 5
MAX_SAMPLES = 6_000
# The metric, and its column.
SHOWN = (
    ("gpuUtilization", "gpu_load"),
    ("gpuMemory", "gpu_memory_mb"),
    ("gpuPower", "gpu_watts"),
    ("cpu", "cpu"),
    ("memory", "memory_mb"),
)


@dataclass(frozen=True, slots=True)
class Spark:
    """The mean of all replicas. `path`: SVG path data. `least`: of the replica with the smallest value, or empty."""

    title: str
    now: str
    least: str
    path: str


@dataclass(frozen=True, slots=True)
class Strip:
    """`lately`: the time that the lines show."""

    sparks: tuple[Spark, ...]
    lately: timedelta


def strip(job: Job, now: datetime) -> Strip:
    rate = job.replica_count * MINUTE_S // SAMPLE_S
    minutes = min(max(MAX_SAMPLES // max(rate, 1), SHORTEST_MIN), LONGEST_MIN)
    end = min(now, job.ended_at or now)
    start = end - timedelta(minutes=minutes)
    found = RunSample.objects.filter(run__job=job, step=SAMPLE_S, at__gte=start, at__lte=end).order_by()
    means = {f"mean_{column}": Avg(column) for _name, column in SHOWN}
    rows: list[Mapping[str, Any]] = list(
        found.annotate(minute=Epoch("at") / MINUTE_S)
        .values("minute")
        .annotate(**means, least=Min("gpu_load"))
        .order_by("minute")
    )
    return Strip(tuple(_sparks(rows, start, end, job.replica_count)), timedelta(minutes=minutes))


def _sparks(
    rows: Sequence[Mapping[str, Any]], start: datetime, end: datetime, replicas: int
) -> Iterator[Spark]:
    for name, column in SHOWN:
        metric = BY_NAME[name]
        known = [(row["minute"], row[f"mean_{column}"]) for row in rows]
        line = [
            (datetime.fromtimestamp(minute * MINUTE_S + MINUTE_S // 2, UTC), float(value))
            for minute, value in known
            if minute is not None and value is not None
        ]
        if not line:
            continue
        top = 100.0 if metric.unit is Unit.PERCENT else max(value for _at, value in line) or 1.0
        least = rows[-1]["least"] if column == "gpu_load" and replicas > 1 else None
        yield Spark(
            gettext(metric.title),
            in_words(line[-1][1], metric.unit),
            _("lowest {value}").format(value=in_words(least, metric.unit)) if least is not None else "",
            path(line, start, end, top, timedelta(seconds=2.5 * MINUTE_S)),
        )
