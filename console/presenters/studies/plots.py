"""The plots of a study as SVG paths, drawn by the server: results over trials, parameters against the result.

A dot is a stroke of no length with round ends, so a plot of a thousand trials is a handful of paths. What is drawn is
bounded; the table of trials has all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from agents.infra.text import visible
from console.forms.parameter_rows import SCALES
from console.presenters.jobs.charts import HEIGHT, WIDTH
from console.presenters.reported_metrics import number
from console.presenters.studies.trial_rows import TrialRow, by_result, parameter_text
from jobs.rules.tuning.search.unit_place import unit_place
from jobs.rules.tuning.space import Parameter, Scale, flat
from jobs.rules.tuning.study import Goal, Metric, StudySpec
from jobs.rules.tuning.trials import TrialState, cost

# So many dots a plot has, so many lines lie over each other, and so many parameters are drawn.
MOST_DOTS, MOST_LINES, MOST_PARAMETERS = 1_000, 250, 12
# All slices together.
MOST_SLICE_DOTS = 4_000
# The best part of the trials is drawn in a colour of its own.
GOOD_PART = 0.2


@dataclass(frozen=True, slots=True)
class ResultPlot:
    """The results of the trials in the order of their numbers, and the best one so far."""

    name: str
    goal: str
    dots: str
    best: str
    first: int
    last: int
    low: str
    high: str
    words: str


@dataclass(frozen=True, slots=True)
class Axis:
    """One parameter. `x`: where it stands; `low` and `high`: the texts at its ends."""

    name: str
    scale: str
    x: int
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class ParallelPlot:
    """A line for each trial across the axes of its parameters. `drawn` of `count` trials with a result."""

    axes: tuple[Axis, ...]
    rest: str
    good: str
    best: str
    drawn: int
    count: int
    hidden_axes: int
    words: str


@dataclass(frozen=True, slots=True)
class SlicePlot:
    """The result over one parameter."""

    axis: Axis
    rest: str
    good: str
    low: str
    high: str
    words: str


@dataclass(frozen=True, slots=True)
class Plots:
    """`metric`: the objective that parameters are drawn against."""

    results: tuple[ResultPlot, ...]
    metric: str
    parallel: ParallelPlot | None
    slices: tuple[SlicePlot, ...]


def plots(study: StudySpec, trials: Sequence[TrialRow]) -> Plots:
    ranked = by_result(study, trials)
    results = [_result_plot(metric, trials) for metric in study.objectives]
    parameters = list({each.name: each for each in flat(study.parameters)}.values())
    axes = [_axis(each, index, parameters) for index, each in enumerate(parameters[:MOST_PARAMETERS])]
    drawable = list(zip(parameters, axes, strict=False))
    several = len(ranked) > 1
    return Plots(
        results=tuple(each for each in results if each is not None),
        metric=visible(study.objectives[0].name),
        parallel=_parallel(drawable, ranked, len(parameters)) if several and len(axes) > 1 else None,
        slices=tuple(_slices(study.objectives[0], drawable, ranked)) if several else (),
    )


def _result_plot(metric: Metric, trials: Iterable[TrialRow]) -> ResultPlot | None:
    found = [
        (each.number, each.values[metric.name])
        for each in trials
        if each.state == TrialState.SUCCEEDED and math.isfinite(each.values.get(metric.name, math.nan))
    ]
    if not found:
        return None
    low, high = (pick(value for _number, value in found) for pick in (min, max))
    first, last = 1, max(found[-1][0], 2)
    best = _best_so_far(metric, found)
    shown = [found[index] for index in _spread(len(found), MOST_DOTS)]
    # The newest result is a dot too, wherever it lies.
    shown = shown if shown[-1] == found[-1] else [*shown, found[-1]]
    return ResultPlot(
        name=visible(metric.name),
        goal=_("smaller is better") if metric.goal is Goal.MINIMIZE else _("larger is better"),
        dots=" ".join(_dot(_x(at, first, last), _y(value, low, high)) for at, value in shown),
        best=_steps(best, first, last, low, high),
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
    for at, value in found:
        if not best or cost(metric, value) < cost(metric, best[-1][1]):
            best.append((at, value))
    return best


def _steps(best: Sequence[tuple[int, float]], first: int, last: int, low: float, high: float) -> str:
    """A line that falls or rises where a trial was better than all before it."""
    at, value = best[0]
    steps = [f"M{_x(at, first, last)} {_y(value, low, high)}"]
    for at, value in best[1:]:
        steps.append(f"H{_x(at, first, last)}V{_y(value, low, high)}")
    return "".join([*steps, f"H{WIDTH:.0f}"])


def _axis(parameter: Parameter, index: int, parameters: Sequence[Parameter]) -> Axis:
    """The axes stand in the middle of equally wide columns: their names are the columns of a grid below them."""
    count = min(len(parameters), MOST_PARAMETERS)
    ends = (
        (parameter.values[0], parameter.values[-1]) if parameter.values else (parameter.low, parameter.high)
    )
    low, high = (parameter_text(each, parameter.kind) for each in ends)
    linear = parameter.values or parameter.scale is Scale.LINEAR
    return Axis(
        name=visible(parameter.name),
        scale="" if linear else str(dict(SCALES)[parameter.scale]),
        x=round(WIDTH * (index + 0.5) / count),
        low=low,
        high=high,
    )


def _parallel(
    drawable: Sequence[tuple[Parameter, Axis]], ranked: Sequence[TrialRow], parameters: int
) -> ParallelPlot:
    good = _good(ranked)
    best_ones, others = ranked[1:good][: MOST_LINES // 2], ranked[good:]
    others = [others[index] for index in _spread(len(others), MOST_LINES - len(best_ones) - 1)]
    drawn = len(best_ones) + len(others) + 1
    text = _("Parameters of {drawn} of {count} trials. The best, trial {number}, has {parameters}.")
    best = ranked[0]
    said = ", ".join(
        f"{axis.name} {parameter_text(best.parameters[each.name], each.kind)}"
        for each, axis in drawable
        if each.name in best.parameters
    )
    return ParallelPlot(
        axes=tuple(axis for _parameter, axis in drawable),
        rest="".join(_line(drawable, each) for each in others),
        good="".join(_line(drawable, each) for each in best_ones),
        best=_line(drawable, best),
        drawn=drawn,
        count=len(ranked),
        hidden_axes=parameters - len(drawable),
        words=text.format(drawn=drawn, count=len(ranked), number=best.number, parameters=said),
    )


def _line(drawable: Sequence[tuple[Parameter, Axis]], trial: TrialRow) -> str:
    """The line of one trial; it passes by the axes of parameters that it does not have."""
    steps: list[str] = []
    for parameter, axis in drawable:
        value = trial.parameters.get(parameter.name)
        place = None if value is None else unit_place(parameter, value)
        if place is not None:
            steps.append(f"{'L' if steps else 'M'}{axis.x} {_height(place)}")
    return "".join(steps)


def _slices(
    metric: Metric, drawable: Sequence[tuple[Parameter, Axis]], ranked: Sequence[TrialRow]
) -> Iterable[SlicePlot]:
    good = _good(ranked)
    most = max(MOST_SLICE_DOTS // max(len(drawable), 1), 2)
    best_ones, others = ranked[:good][: most // 2], ranked[good:]
    others = [others[index] for index in _spread(len(others), most - len(best_ones))]
    values = [each.values[metric.name] for each in ranked]
    low, high = min(values), max(values)
    text = _("{metric} over {name}, from {low} to {high}: the best trial has {value}.")
    for parameter, axis in drawable:
        kept = ranked[0].parameters.get(parameter.name)
        yield SlicePlot(
            axis=axis,
            rest=_dots(metric, parameter, others, low, high),
            good=_dots(metric, parameter, best_ones, low, high),
            low=number(low),
            high=number(high),
            words=text.format(
                metric=visible(metric.name),
                name=axis.name,
                low=axis.low,
                high=axis.high,
                value=parameter_text(kept, parameter.kind),
            ),
        )


def _dots(metric: Metric, parameter: Parameter, trials: Iterable[TrialRow], low: float, high: float) -> str:
    found = []
    for each in trials:
        value = each.parameters.get(parameter.name)
        place = None if value is None else unit_place(parameter, value)
        if place is not None:
            found.append(_dot(round(4 + (WIDTH - 8) * place), _y(each.values[metric.name], low, high)))
    return " ".join(found)


def _good(ranked: Sequence[TrialRow]) -> int:
    """How many trials are the best part of them."""
    return max(math.ceil(len(ranked) * GOOD_PART), 1)


def _spread(count: int, most: int) -> list[int]:
    """The indices of at most so many of them, evenly from the first on."""
    if count <= most:
        return list(range(count))
    return [index * count // most for index in range(max(most, 0))]


def _dot(x: int, y: int) -> str:
    return f"M{x} {y}h.1"


def _x(at: int, first: int, last: int) -> int:
    return round(4 + (WIDTH - 8) * (at - first) / (last - first))


def _y(value: float, low: float, high: float) -> int:
    # Halves first: the distance of two huge numbers is no number.
    return _height((value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5)


def _height(share: float) -> int:
    """Dots at the ends are not cut off."""
    return round(HEIGHT - 4 - (HEIGHT - 8) * share)
