"""What the replicas of a job used over time, as lines for charts: few replicas over each other, many as bands.

The number of queries does not depend on the replicas, and the number of rows is bounded: of very many samples, one of
each step is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import BigIntegerField, F, Func, Max, Min, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from agents.infra.shared_answers import SharedAnswers
from agents.infra.sql import Parameter, SelectStatement
from agents.models import Gpu
from console.presenters.metrics.bands import COLUMNS, Bands, NotByDatabase, read_bands
from console.presenters.metrics.metric_lines import (
    METRICS,
    OF_GPUS,
    POINTS,
    SAMPLE_S,
    SPANS,
    Grid,
    Line,
    Metric,
    Row,
    Sample,
    Span,
    Value,
    step_for,
)
from console.presenters.metrics.metric_marks import Mark, marks
from jobs.models import Job, Run, RunSample

# So many replicas are shown over each other; more become bands.
MOST_LINES = 8
MAX_ROWS = 4_000
FEWEST_POINTS = 12
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
# With fewer samples than one each step, a line would have gaps: a sample may come a little late.
SLICE_S = SAMPLE_S + 2
KEPT = timedelta(seconds=4)
# The coarsest samples stand for so long (jobs/host_sync/samples.py).
LONGEST_S = 600

_runs_of_job = SelectStatement(
    lambda: (
        Run.objects.filter(job=Parameter("job"))
        .order_by("replica__pool", "replica__index", "pk")
        .values_list("pk", "replica__name", "replica", "gpu_uuids", "cpus", "memory_mb")
    )
)

# The column of each value that is no GPU's.
_COLUMNS = {name: column for name, column in COLUMNS.items() if name not in OF_GPUS}
# All GPUs of a run as one. Samples that an older version stored have only lists.
_SUMS = tuple(COLUMNS[name] for name in OF_GPUS)


@dataclass(frozen=True, slots=True)
class Asked:
    """Which lines are wanted. Without `start`: of the last `span`. `bands`: None for what suits so many replicas."""

    start: datetime | None = None
    end: datetime | None = None
    step: int = 0
    replicas: tuple[str, ...] = ()
    bands: bool | None = None
    span: str = "hour"


@dataclass(frozen=True, slots=True)
class Chart:
    """One metric. `top`: what it cannot exceed, if that is known."""

    metric: Metric
    top: int | float | None
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Metrics:
    """`first`, `last`: the times of all samples of the job. `thinned`: not every sample was read."""

    span: Span
    first: datetime | None
    last: datetime | None
    bands: bool
    thinned: bool
    replicas: tuple[str, ...]
    charts: tuple[Chart, ...]
    marks: tuple[Mark, ...]

    def newest(self, steps: int) -> Metrics:
        """The same lines in the last steps only."""
        left_out = max(self.span.count - steps, 0)
        span = Span(self.span.start + left_out * self.span.step, self.span.step, self.span.count - left_out)
        charts = tuple(
            replace(chart, lines=tuple(replace(line, values=line.values[left_out:]) for line in chart.lines))
            for chart in self.charts
        )
        marks = tuple(mark for mark in self.marks if mark.at.timestamp() >= span.start)
        return replace(self, span=span, charts=charts, marks=marks)


class Epoch(Func):
    """A time as whole seconds since 1970, on both databases."""

    output_field = BigIntegerField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(
            compiler, connection, template="CAST(strftime('%%%%s', %(expressions)s) AS INTEGER)", **extra
        )

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "CAST(FLOOR(EXTRACT(EPOCH FROM %(expressions)s)) AS BIGINT)"
        return self.as_sql(compiler, connection, template=template, **extra)


_Answer = tuple[int, Asked]
# A page draws its charts, and its script asks for the same a moment later; so do all people who look at the job.
_shared: SharedAnswers[_Answer, Metrics] = SharedAnswers(KEPT, 32)


def metrics(job: Job, asked: Asked, now: datetime) -> Metrics:
    """Return the lines. Makes six queries at most. Nothing in them depends on who asks."""
    return _shared.get((job.pk, asked), lambda: _metrics(job, asked, now))


@dataclass(frozen=True, slots=True)
class _Of:
    """A run, as far as its lines need it."""

    replica: str
    replica_id: int
    gpus: int
    cpus: float
    memory_mb: int
    uuids: Sequence[str]


def _metrics(job: Job, asked: Asked, now: datetime) -> Metrics:
    runs = _runs(job)
    first, last = _bounds(job)
    end = asked.end or min(now, last + timedelta(seconds=SAMPLE_S) if last else now)
    start = asked.start or _start(end, SPANS[asked.span], first)
    names = list(dict.fromkeys(run.replica for run in runs.values()))
    chosen = [name for name in names if name in asked.replicas] if asked.replicas else names
    bands = len(chosen) > MOST_LINES if asked.bands is None else asked.bands
    span, thinned = _span(start, end, asked.step, len(chosen), now)
    of = set(chosen)
    wanted = {pk: run for pk, run in runs.items() if run.replica in of}
    by_gpu = len(chosen) == 1 and not bands
    lines: Grid | Bands | None = None
    if bands and thinned:
        lines = _bands(job, wanted, len(chosen) == len(names), span, now)
    if lines is None:
        lines = grid = Grid(span, by_gpu)
        _read(grid, wanted, _rows(wanted, span, thinned))
    charts = tuple(_charts(lines, bands, wanted))
    return Metrics(span, first, last, bands, thinned, tuple(names), charts, marks(job, span))


def _bounds(job: Job) -> tuple[datetime | None, datetime | None]:
    """The times of the first and of the last sample. Coarse samples are older than fine ones (host_sync/samples.py), so
    at most four entries of the index are looked up for each run."""
    ends = {}
    for name, steps, order in (("first", (600, 60, 10), "at"), ("last", (10, 60, 600), "-at")):
        of_run = RunSample.objects.filter(run=OuterRef("pk")).order_by(order).values("at")
        ends[name] = Coalesce(*(Subquery(of_run.filter(step=step)[:1]) for step in steps))
    found = Run.objects.filter(job=job).order_by().annotate(**ends).aggregate(Min("first"), Max("last"))
    return found["first__min"], found["last__max"]


def _bands(job: Job, runs: Mapping[str, _Of], all_of_job: bool, span: Span, now: datetime) -> Bands | None:
    """The bands as the database joins them; None where a sample is longer than a step, or of an older version."""
    since = datetime.fromtimestamp(span.start, UTC) - timedelta(seconds=LONGEST_S)
    levels = [(until, seconds) for until, seconds in _stored_levels(now) if until > since]
    if any(seconds > span.step for _until, seconds in levels):
        return None
    replicas = None if all_of_job else sorted({run.replica_id for run in runs.values()})
    try:
        return read_bands(job.pk, replicas, span, SLICE_S, levels, now)
    except NotByDatabase:
        return None


def _stored_levels(now: datetime) -> Iterable[tuple[datetime, int]]:
    """Until when there are samples of so many seconds, and a little longer. Fine ones may wait to be made coarser."""
    yield datetime.max.replace(tzinfo=UTC), 10
    yield now - HOUR + timedelta(seconds=60), 60
    yield now - DAY + timedelta(seconds=LONGEST_S), LONGEST_S


def _start(end: datetime, length: timedelta | None, first: datetime | None) -> datetime:
    """So long before the end, but not before the first sample."""
    if first is None or first >= end:
        return end - (length or HOUR)
    return first if length is None else max(first, end - length)


def _runs(job: Job) -> dict[str, _Of]:
    return {
        pk: _Of(name, replica, len(uuids), cpus, memory, uuids)
        for pk, name, replica, uuids, cpus, memory in _runs_of_job(job=job.pk)
    }


def _span(start: datetime, end: datetime, step: int, replicas: int, now: datetime) -> tuple[Span, bool]:
    """The steps, and whether only one sample of each is to be read: all would be too many."""
    length = max((end - start).total_seconds(), 1.0)
    step = step or step_for(length)
    rows = replicas * sum(_overlap(start, end, *level) for level in _levels(now))
    if rows <= MAX_ROWS:
        return Span.of(start, end, step), False
    points = max(FEWEST_POINTS, min(POINTS, MAX_ROWS // max(replicas, 1)))
    return Span.of(start, end, step_for(length, step, points)), True


def _levels(now: datetime) -> Iterator[tuple[datetime, datetime, int]]:
    """From when to when samples stand for how many seconds."""
    yield now - HOUR, now + DAY, 10
    yield now - DAY, now - HOUR, 60
    yield datetime.min.replace(tzinfo=UTC), now - DAY, 600


def _overlap(start: datetime, end: datetime, since: datetime, until: datetime, seconds: int) -> float:
    return max((min(end, until) - max(start, since)).total_seconds(), 0.0) / seconds


def _rows(runs: Mapping[str, _Of], span: Span, thinned: bool) -> QuerySet[RunSample]:
    # A sample of ten minutes that began before the span reaches into it.
    since = datetime.fromtimestamp(span.start - LONGEST_S, UTC)
    until = datetime.fromtimestamp(span.end, UTC)
    rows = RunSample.objects.filter(run__in=list(runs), at__gte=since, at__lt=until).order_by()
    rows = rows.annotate(second=Epoch("at"))
    return rows.annotate(phase=F("second") % span.step).filter(phase__lt=SLICE_S) if thinned else rows


def _read(grid: Grid, runs: Mapping[str, _Of], rows: QuerySet[RunSample]) -> None:
    if grid.by_gpu:
        grid.add(_with_lists(rows, runs, _COLUMNS))
        return
    old = False

    def of_all() -> Iterator[Row]:
        nonlocal old
        columns = ("run", "second", "step", "gpu_count", *_COLUMNS.values(), *_SUMS)
        for run, at, seconds, count, *values in rows.values_list(*columns).iterator():
            old |= count is None
            yield runs[run].replica, at, seconds, values

    grid.add_rows((*_COLUMNS, *OF_GPUS), of_all())
    if old:
        grid.add(_with_lists(rows.filter(gpu_count__isnull=True), runs, {}))


def _with_lists(
    rows: QuerySet[RunSample], runs: Mapping[str, _Of], of: Mapping[str, str]
) -> Iterator[Sample]:
    """Each GPU by itself. `of`: the columns of the other values."""
    columns = ("run", "second", "step", "gpus", "gpu_power", "gpu_temperature", *of.values())
    for run, at, seconds, gpus, power, heat, *known in rows.values_list(*columns).iterator():
        values = dict(zip(of, known, strict=True))
        yield Sample(at, seconds, runs[run].replica, _gpus(gpus, power, heat), values)


def _gpus(
    gpus: Sequence[Sequence[int | None]], power: Sequence[Value] | None, heat: Sequence[Value] | None
) -> list[tuple[Value, Value, Value, Value]]:
    """Percent, MiB, W and °C of each GPU. Older runners report only the first two."""
    none = [None] * len(gpus)
    watts, degrees = (each if each and len(each) == len(gpus) else none for each in (power, heat))
    return [(load[0], load[1], watt, degree) for load, watt, degree in zip(gpus, watts, degrees, strict=True)]


def _charts(grid: Grid | Bands, bands: bool, runs: Mapping[str, _Of]) -> Iterable[Chart]:
    tops = _tops(runs.values(), by_gpu=len({run.replica for run in runs.values()}) == 1 and not bands)
    order = {name: place for place, name in enumerate(dict.fromkeys(run.replica for run in runs.values()))}
    for metric in METRICS:
        lines = grid.lines(metric) if isinstance(grid, Grid) and not bands else grid.bands(metric)
        if lines:
            lines.sort(key=lambda line: order.get(line.replica, 0))
            yield Chart(metric, tops.get(metric.name), tuple(lines))


def _tops(runs: Collection[_Of], by_gpu: bool) -> dict[str, int | float]:
    """What a line cannot exceed."""
    tops: dict[str, int | float] = {"gpuUtilization": 100}
    cpus = max((run.cpus for run in runs), default=0)
    memory = max((run.memory_mb for run in runs), default=0)
    largest = max(runs, key=lambda run: run.gpus, default=None)
    sizes = (
        Gpu.objects.filter(uuid__in=largest.uuids[:64]).values_list("memory_mb", flat=True) if largest else []
    )
    gpu_memory = max(sizes, default=0) if by_gpu else sum(sizes)
    found = {"cpu": cpus, "memory": memory, "gpuMemory": gpu_memory}
    return tops | {name: top for name, top in found.items() if top}
