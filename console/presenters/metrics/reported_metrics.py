"""What the programs of a job reported, as charts over steps: a line for each replica.

A restart goes on with the curve of its replica: where both have a step, the later run counts. A step of a chart is the
program's; nothing is known of its unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext, gettext_noop, ngettext
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from console.presenters import reduction_words
from console.presenters.metrics.charts import HEIGHT, WIDTH
from jobs.metrics.curves import points_of, series_of
from jobs.models import Job, MetricSeries, Replica, Run
from jobs.rules.lifecycle.states import JobState
from jobs.rules.metrics.thinning import kept
from jobs.tuning import silent_trials

# So many charts are drawn, with so many lines each; and so many points of each line can be seen.
MOST_CHARTS, MOST_LINES, POINTS = 24, 8, 240
MOST_ROWS = 60_000
PRIMARY = "workerpool0-0"
# A job that has reported something and is still for so long may hang.
SILENT = timedelta(minutes=10)
SOURCES = {
    "hypertune": gettext_noop("cloudml-hypertune"),
    "file": gettext_noop("its file of metrics"),
    "tensorboard": gettext_noop("TensorBoard"),
    "mlflow": gettext_noop("MLflow"),
    "wandb": gettext_noop("W&B"),
    "log": gettext_noop("lines of its log"),
}
Curve = Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class ReportedLine:
    """The curve of one replica, and its newest, lowest and highest value."""

    replica: str
    path: str
    step: int
    last: str
    lowest: str
    highest: str
    reports: int


@dataclass(frozen=True, slots=True)
class ReportedChart:
    """`more`: replicas that are not drawn."""

    name: str
    source: str
    first_step: int
    last_step: int
    bottom: str
    top: str
    lines: tuple[ReportedLine, ...]
    more: int

    @property
    def words(self) -> str:
        """What a reader of the screen hears."""
        first = self.lines[0]
        what = ngettext("{name}: {number} line.", "{name}: {number} lines.", len(self.lines))
        text = _("{replica} is at {last} at step {step}; lowest {lowest}, highest {highest}.")
        values = {"replica": first.replica, "last": first.last, "step": first.step}
        return " ".join(
            [
                what.format(name=self.name, number=len(self.lines)),
                text.format(**values, lowest=first.lowest, highest=first.highest),
            ]
        )


@dataclass(frozen=True, slots=True)
class Reported:
    """`more`: charts that are not drawn. `reduction`: how busy the Reduction Server is, in sentences.
    `silent_since`: see there. `of_trial`: that the study of this trial looks for another metric."""

    charts: tuple[ReportedChart, ...]
    more: int
    reduction: tuple[str, ...] = ()
    silent_since: datetime | None = None
    of_trial: str = ""


def reported(job: Job) -> Reported:
    """By three queries, whatever the number of replicas."""
    found = series_of(Run.objects.filter(job=job))
    by_chart: dict[tuple[str, str], dict[str, list[MetricSeries]]] = {}
    for series in found:
        of_chart = by_chart.setdefault((series.name, series.source), {})
        of_chart.setdefault(series.run.replica.name, []).append(series)
    charted = list(by_chart.items())[:MOST_CHARTS]
    drawn = [
        each for _key, lines in charted for replica in list(lines)[:MOST_LINES] for each in lines[replica]
    ]
    curves = _curves(drawn)
    charts = [_chart(name, source, lines, curves) for (name, source), lines in charted]
    return Reported(
        tuple(charts),
        len(by_chart) - len(charted),
        reduction_words.sentences(job, found),
        silent_since(job, max((each.at for each in found), default=None)),
        shown(silent_trials.of_job(job, timezone.now())),
    )


def silent_since(job: Job, newest: datetime | None) -> datetime | None:
    """When the job reported its newest metric, if it runs and has said nothing more for SILENT."""
    if newest is None or job.state != JobState.RUNNING or timezone.now() - newest < SILENT:
        return None
    return newest


@dataclass(frozen=True, slots=True)
class ComparedCurve:
    """What one job reported. `number`: of the job, from 1 on. Without reports all texts are empty. `note`: of which
    replica it is, if not of the primary."""

    number: int
    path: str
    last: str
    lowest: str
    highest: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class ComparedChart:
    """One metric of several jobs over each other, whatever each of them reported it by."""

    name: str
    source: str
    first_step: int
    last_step: int
    bottom: str
    top: str
    curves: tuple[ComparedCurve, ...]


def compared(jobs: Sequence[Job]) -> tuple[ComparedChart, ...]:
    """What the primary replica of each job reported. Where it has nothing of a metric, in whichever way, the first
    replica counts that has: the same that counts for a trial (jobs/tuning/measured.py)."""
    found = series_of(Run.objects.filter(job__in=jobs))
    counts = _replicas_that_count(found)
    counted = [each for each in found if each.run.replica.name == counts[each.run.job_id, each.name]]
    best = _best_sources(counted)
    by_chart: dict[str, dict[int, list[MetricSeries]]] = {}
    for series in counted:
        if series.source == best[series.run.job_id, series.name]:
            by_chart.setdefault(series.name, {}).setdefault(series.run.job_id, []).append(series)
    shown = list(by_chart.items())[:MOST_CHARTS]
    curves = _curves([each for _name, of_jobs in shown for rows in of_jobs.values() for each in rows])
    return tuple(_compared([job.pk for job in jobs], name, of_jobs, curves) for name, of_jobs in shown)


def _replicas_that_count(found: Iterable[MetricSeries]) -> dict[tuple[int, str], str]:
    """By job and metric."""
    first: dict[tuple[int, str], Replica] = {}
    for series in found:
        replica = series.run.replica
        known = first.setdefault((series.run.job_id, series.name), replica)
        if (replica.pool, replica.index) < (known.pool, known.index):
            first[series.run.job_id, series.name] = replica
    return {key: replica.name for key, replica in first.items()}


def note_of(replica: str) -> str:
    """Of which replica a curve is that stands for a whole job; empty if it is the primary's."""
    if replica == PRIMARY:
        return ""
    return _("of {replica}, because the primary reported none").format(replica=replica)


def _best_sources(found: Iterable[MetricSeries]) -> dict[tuple[int, str], str]:
    """By which one each job has reported each metric: where there are several, the one that stands first in SOURCES."""
    order = list(SOURCES)
    best: dict[tuple[int, str], str] = {}
    for series in found:
        key = (series.run.job_id, series.name)
        best[key] = min(best.get(key, series.source), series.source, key=order.index)
    return best


def _compared(
    jobs: Sequence[int],
    name: str,
    of_jobs: Mapping[int, Sequence[MetricSeries]],
    curves: Mapping[int, Curve],
) -> ComparedChart:
    joined = {job: join(curves.get(each.pk, ()) for each in rows) for job, rows in of_jobs.items()}
    steps, low, high = bounds(joined.values())
    found = []
    for index, job in enumerate(jobs, 1):
        if job not in of_jobs:
            found.append(ComparedCurve(index, "", "", "", ""))
            continue
        line = _line("", of_jobs[job], path(joined[job], steps, low, high))
        note = note_of(of_jobs[job][0].run.replica.name)
        found.append(ComparedCurve(index, line.path, line.last, line.lowest, line.highest, note))
    sources = dict.fromkeys(rows[0].source for rows in of_jobs.values())
    source = ", ".join(gettext(SOURCES[each]) for each in sources)
    return ComparedChart(name, source, steps[0], steps[1], number(low), number(high), tuple(found))


def _curves(series: Sequence[MetricSeries]) -> dict[int, list[tuple[int, float]]]:
    points, _truncated = points_of(series, MOST_ROWS)
    return {
        pk: [(row.step, math.nan if row.value is None else row.value) for row in rows]
        for pk, rows in points.items()
    }


def _chart(
    name: str, source: str, lines: Mapping[str, Sequence[MetricSeries]], curves: Mapping[int, Curve]
) -> ReportedChart:
    chosen = list(lines)[:MOST_LINES]
    joined = {replica: join(curves.get(series.pk, ()) for series in lines[replica]) for replica in chosen}
    steps, low, high = bounds(joined.values())
    return ReportedChart(
        name=name,
        source=gettext(SOURCES[source]),
        first_step=steps[0],
        last_step=steps[1],
        bottom=number(low),
        top=number(high),
        lines=tuple(
            _line(replica, lines[replica], path(joined[replica], steps, low, high)) for replica in chosen
        ),
        more=len(lines) - len(chosen),
    )


def _line(replica: str, series: Sequence[MetricSeries], drawn: str) -> ReportedLine:
    lows = [each.lowest for each in series if each.lowest is not None]
    highs = [each.highest for each in series if each.highest is not None]
    newest = series[-1]
    return ReportedLine(
        replica=replica,
        path=drawn,
        step=newest.step,
        last=newest.odd or number(newest.value),
        lowest=number(min(lows, default=None)),
        highest=number(max(highs, default=None)),
        reports=sum(each.reports for each in series),
    )


def join(curves: Iterable[Curve]) -> Curve:
    """The curves of the runs of a replica as one: the later run counts."""
    by_step: dict[int, float] = {}
    for curve in curves:
        by_step.update(curve)
    found = sorted(by_step.items())
    return [found[index] for index in kept(found, POINTS)]


def bounds(curves: Iterable[Curve]) -> tuple[tuple[int, int], float, float]:
    """(first and last step, lowest and highest number)."""
    points = [point for curve in curves for point in curve]
    numbers = [value for _step, value in points if math.isfinite(value)] or [0.0]
    steps = [step for step, _value in points] or [0]
    return (min(steps), max(steps)), min(numbers), max(numbers)


def path(curve: Curve, steps: tuple[int, int], low: float, high: float) -> str:
    """SVG path data. The line is broken at what is no number; a single point is a short stroke."""
    wide = max(steps[1] - steps[0], 1)
    found: list[str] = []
    joined = False
    for step, value in curve:
        if math.isfinite(value):
            x = WIDTH * (step - steps[0]) / wide
            # Halves first: the distance of two huge numbers is no number.
            share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
            y = HEIGHT - 1 - (HEIGHT - 2) * share
            found.append(f"{'L' if joined else 'M'}{x:.1f} {y:.1f}" + ("" if joined else "h0.1"))
        joined = math.isfinite(value)
    return " ".join(found)


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.5g}"
