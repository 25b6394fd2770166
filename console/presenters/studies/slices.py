"""The result over each parameter of a study: as dots, and as a table of a few groups of its values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from django.utils.translation import gettext as _

from agents.infra.text import visible
from console.presenters.metrics.reported_metrics import number
from console.presenters.studies.axes import Axis
from console.presenters.studies.heights import across, dot, y_of
from console.presenters.studies.parallel import good_ones
from console.presenters.studies.plots import spread
from console.presenters.studies.trial_rows import TrialRow, parameter_text
from jobs.rules.tuning.arguments import text_of
from jobs.rules.tuning.study import Metric
from jobs.rules.tuning.trials import cost

# All slices together.
MOST_SLICE_DOTS = 4_000
# So many groups of values a table has; of a list, so many of its values.
GROUPS, MOST_VALUES = 5, 12


@dataclass(frozen=True, slots=True)
class ValueGroup:
    """Trials with values of the parameter that lie beside each other. `best` and `middle`: of their results."""

    values: str
    trials: int
    best: str
    best_trial: int
    middle: str


@dataclass(frozen=True, slots=True)
class SlicePlot:
    """The result over one parameter. `ends`: texts of its lowest and highest value."""

    axis: Axis
    ends: tuple[str, str]
    rest: str
    good: str
    low: str
    high: str
    words: str
    groups: tuple[ValueGroup, ...]


def slices(metric: Metric, axes: Sequence[Axis], ranked: Sequence[TrialRow]) -> Iterable[SlicePlot]:
    """`ranked`: the trials with a number for the metric, the best first."""
    good = good_ones(ranked)
    most = max(MOST_SLICE_DOTS // max(len(axes), 1), 2)
    best_ones, others = ranked[:good][: most // 2], ranked[good:]
    others = [others[index] for index in spread(len(others), most - len(best_ones))]
    values = [each.values[metric.name] for each in ranked]
    low, high = min(values), max(values)
    text = _("{metric} over {name}, from {low} to {high}: the best trial has {value}.")
    for axis in axes:
        ends = axis.ends
        yield SlicePlot(
            axis=axis,
            ends=ends,
            rest=_dots(metric, axis, others, low, high),
            good=_dots(metric, axis, best_ones, low, high),
            low=number(low),
            high=number(high),
            words=text.format(
                metric=visible(metric.name),
                name=axis.name,
                low=ends[0],
                high=ends[1],
                value=parameter_text(axis.value(ranked[0]), axis.parameter.kind),
            ),
            groups=tuple(_group(metric, axis, each) for each in _groups(axis, ranked)),
        )


def _dots(metric: Metric, axis: Axis, trials: Sequence[TrialRow], low: float, high: float) -> str:
    values = (each.values[metric.name] for each in trials)
    places = zip(axis.places(trials), values, strict=True)
    return " ".join(
        dot(across(place), y_of(value, low, high)) for place, value in places if place is not None
    )


def _groups(axis: Axis, ranked: Sequence[TrialRow]) -> Iterable[list[TrialRow]]:
    """A group for each value of a list; of numbers, groups of about as many trials each. None is empty."""
    if axis.parameter.values:
        kind = axis.parameter.kind
        by_value: dict[str, list[TrialRow]] = {}
        for each in ranked:
            value = axis.value(each)
            if value is not None:
                by_value.setdefault(text_of(value, kind), []).append(each)
        return [by_value[each] for each in axis.options if each in by_value][:MOST_VALUES]
    known = [
        (place, each) for place, each in zip(axis.places(ranked), ranked, strict=True) if place is not None
    ]
    known.sort(key=lambda one: one[0])
    count = min(GROUPS, len(known))
    ends = [len(known) * at // max(count, 1) for at in range(count + 1)]
    return [[each for _place, each in known[start:end]] for start, end in zip(ends, ends[1:], strict=False)]


def _group(metric: Metric, axis: Axis, trials: Sequence[TrialRow]) -> ValueGroup:
    """`trials`: in the order of their values of the parameter."""
    kind = axis.parameter.kind
    low, high = (parameter_text(axis.value(each), kind) for each in (trials[0], trials[-1]))
    best = min(trials, key=lambda each: (cost(metric, each.values[metric.name]), each.number))
    return ValueGroup(
        values=low if low == high else _("{low} to {high}").format(low=low, high=high),
        trials=len(trials),
        best=number(best.values[metric.name]),
        best_trial=best.number,
        middle=number(median(each.values[metric.name] for each in trials)),
    )
