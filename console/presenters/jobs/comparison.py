"""Two to five jobs beside each other: outcomes, durations, labels, specifications, and what they used over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Sum
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from agents.infra.text import visible
from agents.infra.texts import moment
from console.presenters import sizes
from console.presenters.badges import JOB, Badge
from console.presenters.jobs.job_head import error_text
from console.presenters.jobs.requested import shown_command, shown_value
from console.presenters.metrics import reported_metrics
from console.presenters.metrics.charts import gib, path
from console.presenters.metrics.metric_lines import Metric, Unit
from console.presenters.metrics.metrics import Asked, metrics
from console.presenters.metrics.reported_metrics import ComparedChart
from jobs.models import Job, JobLabel, Replica

FEWEST, MOST = 2, 5
# The metrics in which trainings are compared. Those of whole hosts tell little about one job.
COMPARED = ("gpuUtilization", "gpuMemory", "gpuPower", "cpu", "memory")
Value = str | timedelta
BEGIN = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Compared:
    """One job of the comparison."""

    id: int
    name: str
    url: str
    badge: Badge
    error: str


@dataclass(frozen=True, slots=True)
class Row:
    """One value of each job, in the order of the jobs. An empty text: this job has none."""

    name: str
    values: tuple[Value, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


@dataclass(frozen=True, slots=True)
class Section:
    """`different` rows are shown, `equal` ones are folded."""

    title: str
    different: tuple[Row, ...]
    equal: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """The median of the replicas of one job over the time since it began. `number`: of the job, from 1 on."""

    number: int
    path: str
    mean: str
    most: str


@dataclass(frozen=True, slots=True)
class Overlay:
    """One metric of all jobs over each other. A job without samples has an empty path."""

    title: str
    top: str
    length: timedelta
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    jobs: tuple[Compared, ...]
    sections: tuple[Section, ...]
    overlays: tuple[Overlay, ...]
    reported: tuple[ComparedChart, ...]


def compare(jobs: Sequence[Job]) -> Comparison:
    """Compare these jobs. The number of queries depends on their number only."""
    ids = [job.pk for job in jobs]
    restarts = dict(
        Replica.objects.filter(job__in=ids).order_by().values_list("job").annotate(Sum("restarts"))
    )
    labels: dict[int, dict[str, str]] = {job.pk: {} for job in jobs}
    for pk, key, value in JobLabel.objects.filter(job__in=ids).values_list("job", "key", "value"):
        labels[pk][key] = value or _("(set)")
    now = timezone.now()
    sections = (
        _section(_("Outcome"), [_outcome(job, restarts.get(job.pk, 0)) for job in jobs]),
        _section(_("Durations"), [_durations(job, now) for job in jobs]),
        _section(_("Labels"), [labels[job.pk] for job in jobs]),
        _section(_("Specification"), [dict(_flat(job.spec)) for job in jobs]),
    )
    compared = tuple(
        Compared(
            job.pk,
            job.display_name,
            reverse("job", args=[job.pk]),
            JOB[job.state],
            shown(error_text(job)),
        )
        for job in jobs
    )
    return Comparison(
        compared,
        tuple(part for part in sections if part),
        tuple(_overlays(jobs, now)),
        reported_metrics.compared(jobs),
    )


def _section(title: str, columns: Sequence[Mapping[str, Value]]) -> Section | None:
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [Row(name, tuple(column.get(name, "") for column in columns)) for name in names]
    if not rows:
        return None
    return Section(
        title,
        tuple(row for row in rows if row.differs),
        tuple(row for row in rows if not row.differs),
    )


def _outcome(job: Job, restarts: int) -> dict[str, str]:
    return {
        _("State"): JOB[job.state].word,
        _("Error"): shown(error_text(job)),
        _("Attempts"): str(job.attempt),
        _("Restarts of replicas"): str(restarts),
        _("Replicas"): str(job.replica_count),
        _("GPUs"): str(job.gpu_count),
        _("Owner"): job.owner_name,
        _("Project"): job.project.name,
    }


def _durations(job: Job, now: datetime) -> dict[str, Value]:
    ended = job.ended_at or now
    waited = (job.started_at or ended) - job.created_at
    ran = ended - job.started_at if job.started_at else None
    return {
        _("Submitted"): shown(moment(job.created_at)),
        _("Waited"): _whole(waited),
        _("Ran"): _whole(ran) if ran is not None else _("not started"),
    }


def _whole(length: timedelta) -> timedelta:
    """In whole seconds: smaller differences tell nothing."""
    return timedelta(seconds=max(round(length.total_seconds()), 0))


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The fields of a document with their places. Variables stand under their names, commands on one line."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else key)
    elif name.endswith(".env"):
        yield from ((f"{name}.{pair['name']}", shown_value(pair)) for pair in value)
    elif name.endswith((".command", ".args")):
        yield name, shown_command(value)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _flat(inner, f"{name}[{index}]")
    elif value is not None:
        yield name, visible(str(value))


def _overlays(jobs: Sequence[Job], now: datetime) -> Iterable[Overlay]:
    """Each metric that at least one of the jobs has."""
    found = [metrics(job, Asked(bands=True, span="all"), now) for job in jobs]
    longest = max((one.span.step * one.span.count for one in found if one.first), default=1)
    for name in COMPARED:
        charts = [next((chart for chart in one.charts if chart.metric.name == name), None) for one in found]
        known = next((chart for chart in charts if chart), None)
        if known is None:
            continue
        medians = [
            next((line.values for line in chart.lines if line.name == "median"), []) if chart else []
            for chart in charts
        ]
        most = max((value for line in medians for value in line if value is not None), default=0)
        top = max(most, *(chart.top or 0 for chart in charts if chart)) or 1.0
        say = _words(known.metric)
        curves = tuple(
            _curve(number, line, one.span.step, longest, float(top), say)
            for number, (line, one) in enumerate(zip(medians, found, strict=True), 1)
        )
        yield Overlay(gettext(known.metric.title), say(float(top)), timedelta(seconds=longest), curves)


def _curve(
    number: int,
    line: Sequence[float | int | None],
    step: int,
    longest: int,
    top: float,
    say: Callable[[float], str],
) -> Curve:
    points = [
        (BEGIN + timedelta(seconds=step * at), float(value))
        for at, value in enumerate(line)
        if value is not None
    ]
    if not points:
        return Curve(number, "", "", "")
    values = [value for _at, value in points]
    drawn = path(points, BEGIN, BEGIN + timedelta(seconds=longest), top, timedelta(seconds=3 * step))
    return Curve(number, drawn, say(sum(values) / len(values)), say(max(values)))


def _words(metric: Metric) -> Callable[[float], str]:
    """How a value of this metric is written."""
    if metric.unit is Unit.PERCENT:
        return lambda value: f"{value:.0f} %"
    if metric.unit is Unit.MEBIBYTES:
        return lambda value: gib(round(value))
    if metric.unit is Unit.CORES:
        return sizes.decimal
    return lambda value: f"{value:.0f} {metric.unit}"
