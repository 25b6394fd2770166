"""The smallest, the middle and the largest value of very many replicas, step by step.

The first seconds of each step are read, by the index of samples. The database joins the samples of each replica and
sends one list for each step and metric, which json reads at once: to read the rows takes ten times as long.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from agents.infra.shared_answers import SharedAnswers
from console.presenters.metrics.metric_lines import BANDS, BY_NAME, Join, Line, Metric, Span, Value, rounded

# The column of each metric.
COLUMNS: Mapping[str, str] = {
    "gpuUtilization": "gpu_load",
    "gpuMemory": "gpu_memory_mb",
    "gpuPower": "gpu_watts",
    "gpuTemperature": "gpu_celsius",
    "cpu": "cpu",
    "memory": "memory_mb",
    "networkReceive": "net_rx",
    "networkSend": "net_tx",
    "diskRead": "io_read",
    "diskWrite": "io_write",
    "diskFree": "disk_free_mb",
}
_JOINS = {Join.MEAN: "avg", Join.MAX: "max", Join.MIN: "min"}
# When a step begins, as a number and as a time, and how long its samples stand for: only what there can be then.
Window = tuple[int, datetime, int]
Row = tuple[Any, ...]


class NotByDatabase(Exception):
    """Raised where samples are stored as an older version did: without the sums of all GPUs."""


# Of a metric in one step: the smallest, the middle and the largest value.
Three = tuple[float, float, float]
Step = Mapping[str, Three]
# Samples come as hosts report them. A step is over when so much time has passed since its first seconds.
SETTLED_AFTER = timedelta(minutes=1)
KEPT = timedelta(minutes=5)
# The steps that are over, by the second at which they begin: of a job, of these replicas, of this length.
_settled: SharedAnswers[tuple[int, tuple[int, ...] | None, int], dict[int, Step]] = SharedAnswers(KEPT, 64)


class Bands:
    """`steps`: what is known of each step, by its place in the span."""

    def __init__(self, span: Span, steps: Mapping[int, Step]) -> None:
        self._span, self._steps = span, steps

    def bands(self, metric: Metric) -> list[Line]:
        known = {place: found[metric.name] for place, found in self._steps.items() if metric.name in found}
        if not known:
            return []
        return [
            Line(name, "", None, [self._value(known, place, of, metric) for place in range(self._span.count)])
            for of, name in enumerate(BANDS)
        ]

    @staticmethod
    def _value(known: Mapping[int, Three], place: int, of: int, metric: Metric) -> Value:
        return rounded(known[place][of], metric.unit) if place in known else None


def read_bands(
    job: int,
    replicas: Sequence[int] | None,
    span: Span,
    slice_s: int,
    levels: Sequence[tuple[datetime, int]],
    now: datetime,
) -> Bands:
    """`replicas`: only these, None for all. `levels`: which seconds samples may stand for, and up to which time there
    are some. None may be longer than a step. Raises NotByDatabase."""
    key = job, None if replicas is None else tuple(replicas), span.step
    settled = _settled.get(key, dict)
    begins = [span.start + place * span.step for place in range(span.count)]
    found = {begin: settled[begin] for begin in begins if begin in settled}
    missing = [begin for begin in begins if begin not in found]
    found |= _read(job, replicas, list(_windows(missing, levels)), slice_s)
    over = (now - SETTLED_AFTER).timestamp() - slice_s
    settled.update({begin: found.get(begin, {}) for begin in missing if begin < over})
    return Bands(span, {(begin - span.start) // span.step: step for begin, step in found.items()})


def _read(
    job: int, replicas: Sequence[int] | None, windows: Sequence[Window], slice_s: int
) -> dict[int, dict[str, Three]]:
    of_database = _postgresql if connection.vendor == "postgresql" else _sqlite
    found: dict[int, dict[str, Three]] = {}
    for begin, old, *lists in of_database(job, replicas, windows, slice_s) if windows else ():
        if old:
            raise NotByDatabase
        known = {name: text for name, text in zip(COLUMNS, lists, strict=True) if text not in (None, "[]")}
        found[begin] = {name: _three(json.loads(text)) for name, text in known.items()}
    return found


def _three(values: list[float]) -> Three:
    values.sort()
    least, middle, most = (pick(values) for pick in BANDS.values())
    return least, middle, most


def _windows(begins: Iterable[int], levels: Sequence[tuple[datetime, int]]) -> Iterator[Window]:
    for begin in begins:
        at = datetime.fromtimestamp(begin, UTC)
        for until, seconds in levels:
            if at < until:
                yield begin, at, seconds


def _each(what: str) -> str:
    return ", ".join(what.format(column=column) for column in COLUMNS.values())


_JOINED = ", ".join(
    f"{_JOINS[BY_NAME[name].join]}(s.{column}{{real}}) AS {column}" for name, column in COLUMNS.items()
)
_OF_REPLICAS = """
    SELECT w.number, r.replica_id, max(CASE WHEN s.gpu_count IS NULL THEN 1 ELSE 0 END) AS old, {joined}
"""
_LISTS = "SELECT number, max(old), {lists} FROM joined GROUP BY number"
_POSTGRESQL = f"""
WITH joined AS ({_OF_REPLICAS.format(joined=_JOINED.format(real="::float8"))}
    FROM jobs_run r
    CROSS JOIN unnest(%(numbers)s::bigint[], %(times)s::timestamptz[], %(steps)s::int[]) AS w(number, at, step)
    CROSS JOIN LATERAL (
        SELECT * FROM jobs_runsample
        WHERE run_id = r.id AND step = w.step AND at >= w.at AND at < w.at + %(slice)s OFFSET 0
    ) s
    WHERE r.job_id = %(job)s AND (%(replicas)s::bigint[] IS NULL OR r.replica_id = ANY(%(replicas)s))
    GROUP BY w.number, r.replica_id
)
{_LISTS.format(lists=_each("CAST(json_agg({column}) FILTER (WHERE {column} IS NOT NULL) AS text)"))}
"""
_SQLITE = f"""
WITH w AS (
    SELECT json_extract(value, '$[0]') AS number, json_extract(value, '$[1]') AS since,
        json_extract(value, '$[2]') AS until, json_extract(value, '$[3]') AS step FROM json_each(%s)
), joined AS ({_OF_REPLICAS.format(joined=_JOINED.format(real=""))}
    FROM jobs_run r CROSS JOIN w CROSS JOIN jobs_runsample s
    WHERE r.job_id = %s AND (%s IS NULL OR r.replica_id IN (SELECT value FROM json_each(%s)))
        AND s.run_id = r.id AND s.step = w.step AND s.at >= w.since AND s.at < w.until
    GROUP BY w.number, r.replica_id
)
{_LISTS.format(lists=_each("json_group_array({column}) FILTER (WHERE {column} IS NOT NULL)"))}
"""


def _postgresql(
    job: int, replicas: Sequence[int] | None, windows: Sequence[Window], slice_s: int
) -> list[Row]:
    numbers, times, steps = (list(column) for column in zip(*windows, strict=True))
    values: dict[str, Any] = {
        "job": job,
        "replicas": None if replicas is None else list(replicas),
        "numbers": numbers,
        "times": times,
        "steps": steps,
        "slice": timedelta(seconds=slice_s),
    }
    with connection.cursor() as cursor:
        cursor.execute(_POSTGRESQL, values)
        return list(cursor.fetchall())


def _sqlite(job: int, replicas: Sequence[int] | None, windows: Sequence[Window], slice_s: int) -> list[Row]:
    stored = connection.ops.adapt_datetimefield_value
    asked = [
        (number, stored(at), stored(at + timedelta(seconds=slice_s)), seconds)
        for number, at, seconds in windows
    ]
    chosen = None if replicas is None else json.dumps(list(replicas))
    with connection.cursor() as cursor:
        cursor.execute(_SQLITE, [json.dumps(asked), job, chosen, chosen or "[]"])
        return list(cursor.fetchall())
