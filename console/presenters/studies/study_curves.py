"""The curves of the trials of a study: what their programs reported of one metric, over their steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.urls import reverse
from django.utils.translation import ngettext

from agents.infra.text import visible
from console.presenters.badges import Badge
from console.presenters.metrics import reported_metrics
from console.presenters.metrics.reported_metrics import Curve, number
from console.presenters.studies.asked import Choice, chosen_metric, metric_choices
from console.presenters.studies.axes import Inside, axes_of
from console.presenters.studies.read_trials import read_trials
from console.presenters.studies.trial_rows import TrialRow, by_result
from jobs.metrics import curves
from jobs.models import MetricPoint, MetricSeries, Run, TuningJob
from jobs.rules.metrics.thinning import kept
from jobs.rules.tuning.trials import RUNNING
from jobs.tuning import measured, snapshot

PAGE = "study-curves"
# So many trials are drawn: those that run, the best ones, then the newest. So many points of each can be seen.
MOST_RUNNING, MOST_BEST, MOST_TRIALS, POINTS = 20, 20, 50, 100
MOST_ROWS = 20_000
RUNS, GOOD, STOPPED, REST = "running", "good", "stopped", "rest"


@dataclass(frozen=True, slots=True)
class TrialCurve:
    """What one trial reported. `kind`: how its line is drawn. `note`: of which replica it is, if not of the primary."""

    trial: TrialRow
    badge: Badge
    kind: str
    path: str
    end: str
    step: int
    last: str
    low: str
    high: str
    note: str


@dataclass(frozen=True, slots=True)
class StudyCurves:
    """`shown` of `count` trials with parameters. `words`: what a reader of the screen hears."""

    metric: str
    metrics: Sequence[Choice]
    inside: Inside
    lines: tuple[TrialCurve, ...]
    shown: int
    count: int
    first_step: int
    last_step: int
    low: str
    high: str
    words: str


def study_curves(tuning_job: TuningJob, query: Mapping[str, str]) -> StudyCurves:
    study = snapshot.study_of(tuning_job)
    wanted = chosen_metric(study, query)
    metric = wanted.name
    every = read_trials(tuning_job)
    axes = axes_of(study, every, query)
    here = reverse(PAGE, args=[tuning_job.pk])
    trials = [each for each in axes.inside(every) if each.parameters and each.job]
    ranked = by_result(wanted, trials)
    chosen = _chosen(trials, ranked)
    found, notes = _curves(chosen, metric)
    good = {each.number for each in ranked[:MOST_BEST]}
    steps, low, high = reported_metrics.bounds(found.values())
    lines = [
        _line(each, found[each.number], each.number in good, (steps, low, high), notes[each.number])
        for each in chosen
        if each.number in found
    ]
    # Lines that are looked for lie above the others.
    order = (REST, STOPPED, GOOD, RUNS)
    return StudyCurves(
        metric=visible(metric),
        metrics=metric_choices(study, query, here),
        inside=axes.inside_of(every, query, here),
        lines=tuple(sorted(lines, key=lambda line: (order.index(line.kind), line.trial.number))),
        shown=len(lines),
        count=len(trials),
        first_step=steps[0],
        last_step=steps[1],
        low=number(low),
        high=number(high),
        words=_words(visible(metric), lines),
    )


def _words(metric: str, lines: Sequence[TrialCurve]) -> str:
    running = sum(line.kind == RUNS for line in lines)
    return ngettext(
        "{metric} of {number} trial over its steps, {running} of them running; the table below has the numbers.",
        "{metric} of {number} trials over their steps, {running} of them running; the table below has the numbers.",
        len(lines),
    ).format(metric=metric, number=len(lines), running=running)


def _chosen(trials: Sequence[TrialRow], ranked: Sequence[TrialRow]) -> list[TrialRow]:
    """The most wanted first: points are read until there are too many."""
    running = [each for each in trials if each.state in RUNNING]
    wanted = [*running[-MOST_RUNNING:], *ranked[:MOST_BEST], *reversed(trials)]
    return list({each.number: each for each in wanted}.values())[:MOST_TRIALS]


def _curves(trials: Sequence[TrialRow], metric: str) -> tuple[dict[int, Curve], dict[int, str]]:
    """By the number of the trial: its curve, and of which replica it is."""
    numbers = {each.job: each.number for each in trials}
    by_trial: dict[int, list[MetricSeries]] = defaultdict(list)
    for series in curves.series_of(Run.objects.filter(job__in=list(numbers)), name=metric):
        by_trial[numbers[series.run.job_id]].append(series)
    chosen = {each.number: measured.that_count(by_trial[each.number], _place) for each in trials}
    points, _left_out = curves.points_of([one for rows in chosen.values() for one in rows], MOST_ROWS)
    found = {of: _joined(rows, points) for of, rows in chosen.items()}
    notes = {of: reported_metrics.note_of(rows[0].run.replica.name) for of, rows in chosen.items() if rows}
    return {of: curve for of, curve in found.items() if curve}, notes


def _place(series: MetricSeries) -> measured.Place:
    replica = series.run.replica
    return measured.Place(replica.pool, replica.index, series.source)


def _joined(series: Iterable[MetricSeries], points: Mapping[int, Iterable[MetricPoint]]) -> Curve:
    """The later run counts where two have a step."""
    by_step = {
        row.step: math.nan if row.value is None else row.value
        for each in series
        for row in points.get(each.pk, ())
    }
    found = sorted(by_step.items())
    return [found[index] for index in kept(found, POINTS)]


def _line(
    trial: TrialRow, curve: Curve, good: bool, frame: tuple[tuple[int, int], float, float], note: str
) -> TrialCurve:
    kind = RUNS if trial.state in RUNNING else STOPPED if trial.stopped_early else GOOD if good else REST
    numbers = [value for _step, value in curve if math.isfinite(value)]
    return TrialCurve(
        trial=trial,
        badge=trial.badge,
        kind=kind,
        path=reported_metrics.path(curve, *frame),
        end=reported_metrics.path(curve[-1:], *frame) if kind == STOPPED else "",
        step=curve[-1][0],
        last=number(curve[-1][1]),
        low=number(min(numbers, default=None)),
        high=number(max(numbers, default=None)),
        note=note,
    )
