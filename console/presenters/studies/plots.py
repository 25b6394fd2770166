"""The plots of a study as SVG paths, drawn by the server: results over trials, two metrics against each other.

A dot is a stroke of no length with round ends, so a plot of a thousand trials is a handful of paths. What is drawn is
bounded; the table of trials has all.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

from agents.infra.shared_answers import SharedAnswers
from agents.infra.text import visible
from console.presenters.metrics.charts import WIDTH
from console.presenters.metrics.reported_metrics import number
from console.presenters.studies.asked import chosen_metric, chosen_pair
from console.presenters.studies.axes import Axes
from console.presenters.studies.heights import across, dot, dots, share_of, shares_of, y_of
from console.presenters.studies.parallel import ParallelPlot, parallel_plot
from console.presenters.studies.trial_rows import TrialRow, by_result, finals
from jobs.models import TuningJob
from jobs.rules.tuning.measurements import best_trials
from jobs.rules.tuning.study import Goal, Metric, StudySpec
from jobs.rules.tuning.trials import TrialState, cost

# So many dots a plot has, and so many those of all results and of the front together.
MOST_DOTS, MOST_IN_ALL = 1_000, 2_000
# Unless a person chooses, results of which the largest is so many times the smallest are drawn by their logarithms:
# else the steps of a loss from 0.01 to 0.0001 would all lie at the bottom, if one trial has 1.4.
WIDE = 100
# The plots of so many pages are kept, for so long. Those of a thousand trials are 100 kB.
MOST_KEPT, KEPT = 30, timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ResultPlot:
    """The results of the trials in the order of their numbers, and the best one so far. `may_be_log`: none of them is
    zero or below it."""

    metric: str
    name: str
    goal: str
    logarithmic: bool
    may_be_log: bool
    dots: str
    best: str
    first: int
    last: int
    low: str
    high: str
    words: str


@dataclass(frozen=True, slots=True)
class FrontTrial:
    """A trial of the front. `values`: texts of both metrics."""

    trial: TrialRow
    values: tuple[str, str]


@dataclass(frozen=True, slots=True)
class FrontPlot:
    """Two metrics against each other. `front`: the trials that no other one beats in both, along the first metric.
    `pair`: the metrics as they are; `names`: as they are shown."""

    pair: tuple[str, str]
    names: tuple[str, str]
    goals: tuple[str, str]
    rest: str
    dots: str
    line: str
    low: tuple[str, str]
    high: tuple[str, str]
    front: tuple[FrontTrial, ...]
    words: str


@dataclass(frozen=True, slots=True)
class Plots:
    """`metric`: the one by which the lines of trials are ranked. `axes`: what may be brushed."""

    results: tuple[ResultPlot, ...]
    front: FrontPlot | None
    metric: str
    axes: Axes
    parallel: ParallelPlot | None


def kept_plots(
    tuning_job: TuningJob, study: StudySpec, trials: Sequence[TrialRow], best: Collection[int], axes: Axes
) -> Plots:
    """The same, drawn once for all who look. Plots show trials that have succeeded. These never change, so how many
    there are says which, but a job that is deleted is not linked any more."""
    succeeded = [each for each in trials if each.state == TrialState.SUCCEEDED]
    without_job = tuple(each.number for each in succeeded if each.job is None)
    drawn = (tuning_job.pk, get_language(), len(succeeded), without_job, tuple(axes.query.items()))
    return _kept.get(drawn, lambda: plots(study, trials, best, axes))


def plots(study: StudySpec, trials: Sequence[TrialRow], best: Collection[int], axes: Axes) -> Plots:
    """`best`: the numbers of the best trials."""
    count = len(study.objectives)
    most = min(MOST_DOTS, MOST_IN_ALL // (count + (count > 1)))
    results = [
        _result_plot(metric, trials, axes.scales.get(metric.name, ""), most) for metric in study.objectives
    ]
    chosen = chosen_metric(study, axes.plots)
    return Plots(
        results=tuple(each for each in results if each is not None),
        front=front_plot(study, trials, best, axes.plots, most),
        metric=visible(chosen.name),
        axes=axes,
        parallel=parallel_plot(chosen, axes, by_result(chosen, trials)),
    )


_kept: SharedAnswers[Hashable, Plots] = SharedAnswers(KEPT, MOST_KEPT)


def goal_words(metric: Metric) -> str:
    return _("smaller is better") if metric.goal is Goal.MINIMIZE else _("larger is better")


def front_plot(
    study: StudySpec, trials: Sequence[TrialRow], best: Collection[int], asked: Mapping[str, str], most: int
) -> FrontPlot | None:
    """None unless there are two objectives, and two trials with a number for both. `best`: of all objectives."""
    pair = chosen_pair(study, asked)
    if pair is None:
        return None
    one, other = pair
    if len(study.objectives) > 2:
        best = best_trials(replace(study, metrics=pair), finals(trials))
    found = [
        (each.values[one.name], each.values[other.name], each)
        for each in trials
        if each.state == TrialState.SUCCEEDED
        and all(math.isfinite(each.values.get(metric.name, math.nan)) for metric in pair)
    ]
    if len(found) < 2:
        return None
    xs, ys = [x for x, _y, _trial in found], [y for _x, y, _trial in found]
    low, high = (min(xs), min(ys)), (max(xs), max(ys))

    def place(x: float, y: float) -> tuple[int, int]:
        return across(share_of(x, low[0], high[0])), y_of(y, low[1], high[1])

    front = sorted((each for each in found if each[2].number in best), key=lambda each: each[:2])
    others = [each for each in found if each[2].number not in best]
    others = [others[index] for index in spread(len(others), most)]
    steps = [place(x, y) for x, y, _trial in front]
    names = (visible(one.name), visible(other.name))
    return FrontPlot(
        pair=(one.name, other.name),
        names=names,
        goals=(goal_words(one), goal_words(other)),
        rest=" ".join(dot(*place(x, y)) for x, y, _trial in others),
        dots=" ".join(dot(x, y) for x, y in steps),
        line="".join(f"{'L' if index else 'M'}{x} {y}" for index, (x, y) in enumerate(steps)),
        low=(number(low[0]), number(low[1])),
        high=(number(high[0]), number(high[1])),
        front=tuple(FrontTrial(each, (number(x), number(y))) for x, y, each in front),
        words=ngettext(
            "{other} over {one} of {count} trials. {front} is on the front: no other trial beats it in both.",
            "{other} over {one} of {count} trials. {front} are on the front: no other trial beats one of them in both.",
            len(front),
        ).format(one=names[0], other=names[1], count=len(found), front=len(front)),
    )


def _result_plot(metric: Metric, trials: Iterable[TrialRow], asked: str, most: int) -> ResultPlot | None:
    """`asked`: the scale that the address asks for; without it the results decide. `most`: so many dots."""
    found = [
        (each.number, each.values[metric.name])
        for each in trials
        if each.state == TrialState.SUCCEEDED and math.isfinite(each.values.get(metric.name, math.nan))
    ]
    if not found:
        return None
    values = [value for _number, value in found]
    low, high = min(values), max(values)
    first, last = 1, max(found[-1][0], 2)
    best = _best_so_far(metric, found)
    logarithmic = low > 0 and (asked == "log" or (not asked and high / low >= WIDE))
    scale = math.log if logarithmic else float
    ends = scale(low), scale(high)

    def place(at: int, value: float) -> tuple[int, int]:
        return across((at - first) / (last - first)), y_of(scale(value), *ends)

    shown = [found[index] for index in spread(len(found), most)]
    # The newest result is a dot too, wherever it lies.
    shown = shown if shown[-1] == found[-1] else [*shown, found[-1]]
    return ResultPlot(
        metric=metric.name,
        name=visible(metric.name),
        goal=goal_words(metric),
        logarithmic=logarithmic,
        may_be_log=low > 0,
        dots=dots(
            [(at - first) / (last - first) for at, _value in shown],
            shares_of([scale(value) for _at, value in shown], *ends),
        ),
        best=_steps([place(at, value) for at, value in best]),
        first=first,
        last=last,
        low=number(low),
        high=number(high),
        words=ngettext(
            "{name}: {count} result, from {low} to {high}; the best is {best} of trial {trial}.",
            "{name}: {count} results, from {low} to {high}; the best is {best} of trial {trial}.",
            len(found),
        ).format(
            name=visible(metric.name),
            count=len(found),
            low=number(low),
            high=number(high),
            best=number(best[-1][1]),
            trial=best[-1][0],
        ),
    )


def _best_so_far(metric: Metric, found: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The trials that were better than all before them."""
    best: list[tuple[int, float]] = []
    least = math.inf
    for at, value in found:
        if not best or cost(metric, value) < least:
            best.append((at, value))
            least = cost(metric, value)
    return best


def _steps(best: Sequence[tuple[int, int]]) -> str:
    """A line that falls or rises where a trial was better than all before it."""
    (x, y), *others = best
    return "".join([f"M{x} {y}", *(f"H{x}V{y}" for x, y in others), f"H{WIDTH:.0f}"])


def spread(count: int, most: int) -> list[int]:
    """The indices of at most so many of them, evenly from the first on."""
    if count <= most:
        return list(range(count))
    return [index * count // most for index in range(max(most, 0))]
