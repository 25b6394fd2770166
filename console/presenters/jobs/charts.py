"""Charts of what one replica uses, drawn on the server as SVG without script or style."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _

from agents.models import Gpu
from jobs.models import Job, RunSample

WIDTH, HEIGHT = 600.0, 90.0
# The maximal number of points in a line: more cannot be seen.
POINTS = 240
MAX_ROWS = 8_000
SPANS: Mapping[str, tuple[str, timedelta | None]] = {
    "hour": (gettext_noop("last hour"), timedelta(hours=1)),
    "day": (gettext_noop("last day"), timedelta(days=1)),
    "all": (gettext_noop("all of it"), None),
}

Point = tuple[datetime, float]


@dataclass(frozen=True, slots=True)
class Charts:
    """The charts of one replica over a span of time."""

    replica: str
    span: str
    spans: tuple[tuple[str, str], ...]
    start: datetime | None
    end: datetime | None
    all: tuple[Chart, ...]


def charts(job: Job, replica: str, span: str, now: datetime) -> Charts:
    """Return the charts of one replica. Makes two queries."""
    span = span if span in SPANS else "hour"
    rows = _rows(job, replica, SPANS[span][1], now)
    start, end = (rows[0].at, rows[-1].at) if rows else (None, None)
    spans = tuple((value, gettext(word)) for value, (word, _length) in SPANS.items())
    return Charts(replica, span, spans, start, end, _charts(rows))


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    top: str
    words: str
    paths: tuple[str, ...]


def _rows(job: Job, replica: str, span: timedelta | None, now: datetime) -> list[RunSample]:
    rows = RunSample.objects.filter(run__job=job, run__replica__name=replica).order_by("-at")
    newest = rows.values_list("at", flat=True).first()
    if newest is None:
        return []
    if span is not None:
        rows = rows.filter(at__gt=min(newest, now) - span)
    return list(reversed(rows.select_related("run").defer("run__order")[:MAX_ROWS]))


def _charts(rows: Sequence[RunSample]) -> tuple[Chart, ...]:
    if len(rows) < 2:
        return ()
    cpus = max(row.run.cpus for row in rows)
    charts = [
        _chart(
            rows,
            _("CPU"),
            [lambda row: row.cpu],
            cpus,
            lambda cores: _("{number} CPUs").format(number=f"{cores:.1f}"),
        ),
        _chart(
            rows, _("Memory"), [lambda row: row.memory_mb], rows[-1].run.memory_mb, lambda mb: gib(round(mb))
        ),
    ]
    gpus = max(len(row.gpus) for row in rows)
    if gpus:
        sizes = Gpu.objects.filter(uuid__in=rows[-1].run.gpu_uuids).values_list("memory_mb", flat=True)
        charts += [
            _chart(
                rows,
                _("GPU"),
                [_gpu(index, 0) for index in range(gpus)],
                100,
                lambda percent: f"{percent:.0f} %",
            ),
            _chart(
                rows,
                _("GPU memory"),
                [_gpu(index, 1) for index in range(gpus)],
                max(sizes, default=0),
                lambda mb: gib(round(mb)),
            ),
        ]
    return tuple(charts)


def _gpu(index: int, what: int) -> Callable[[RunSample], float | None]:
    def value(row: RunSample) -> float | None:
        found: float | None = row.gpus[index][what] if index < len(row.gpus) else None
        return found

    return value


def _chart(
    rows: Sequence[RunSample],
    title: str,
    values: Sequence[Callable[[RunSample], float | None]],
    top: float,
    words: Callable[[float], str],
) -> Chart:
    lines = [
        [(row.at, float(found)) for row in rows if (found := value(row)) is not None] for value in values
    ]
    every = [value for line in lines for _at, value in line]
    top = max([top, *every]) or 1.0
    last = [line[-1][1] for line in lines if line]
    mean = sum(last) / len(last) if last else 0.0
    least, most = words(min(every, default=0)), words(max(every, default=0))
    said = _("{title}: {mean} at the end, between {least} and {most}").format(
        title=title, mean=words(mean), least=least, most=most
    )
    gap = timedelta(seconds=3 * max(row.step for row in rows))
    paths = tuple(path(thin(line), rows[0].at, rows[-1].at, top, gap) for line in lines if line)
    return Chart(title, words(top), said, paths)


def thin(line: Sequence[Point]) -> Sequence[Point]:
    """Reduce a line to the points that can be seen. Of each stretch the highest point stays, so no peak is lost."""
    if len(line) <= POINTS:
        return line
    size = -(-len(line) // POINTS)
    stretches = (line[at : at + size] for at in range(0, len(line), size))
    return [max(stretch, key=lambda point: point[1]) for stretch in stretches]


def path(line: Iterable[Point], start: datetime, end: datetime, top: float, gap: timedelta) -> str:
    """Return SVG path data. The line is broken where samples are missing for longer than `gap`."""
    span = (end - start).total_seconds() or 1.0
    steps: list[str] = []
    before: datetime | None = None
    for at, value in line:
        x = WIDTH * (at - start).total_seconds() / span
        y = HEIGHT - (HEIGHT - 2) * value / top - 1
        joined = before is not None and at - before <= max(gap, timedelta(seconds=span / POINTS * 3))
        steps.append(f"{'L' if joined else 'M'}{x:.1f} {y:.1f}")
        before = at
    return " ".join(steps)


def gib(mb: int | None) -> str:
    if mb is None:
        return ""
    return f"{mb} MiB" if mb < 1024 else f"{mb / 1024:.1f} GiB"
