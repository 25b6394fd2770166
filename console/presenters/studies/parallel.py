"""Parallel coordinates: a line for each trial across the axes of its parameters and metrics.

Each line is a path of its own, so that it can be pointed at. Of many trials the best fifth and a sample are drawn; the
sample follows from the numbers of the trials alone, so lines stay where they are while results come in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple
from zlib import crc32

from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.presenters.metrics.reported_metrics import number
from console.presenters.studies.axes import Axes, Axis, x_of
from console.presenters.studies.heights import steps
from console.presenters.studies.trial_rows import TrialRow, parameter_text
from jobs.rules.tuning.study import Metric

# So many lines are drawn, and so many points of them.
MOST_LINES, MOST_POINTS = 1_000, 6_000
# The best part of the trials is drawn in a colour and a width of its own.
GOOD_PART = 0.2
BEST, GOOD, REST, OUT = "best", "good", "rest", "out"


class Line(NamedTuple):
    """`kind`: how it is drawn. `value`: its result, as a text."""

    number: int
    kind: str
    value: str
    path: str


@dataclass(frozen=True, slots=True)
class DrawnAxis:
    """`x`: where it stands; `low` and `high`: the texts at its ends."""

    axis: Axis
    x: int
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class ParallelPlot:
    """`lines`: the paths of the trials. `drawn` of `count` trials with a result."""

    axes: tuple[DrawnAxis, ...]
    lines: SafeString
    drawn: int
    count: int
    words: str


def good_ones(ranked: Sequence[TrialRow]) -> int:
    """How many trials are the best part of them."""
    return max(math.ceil(len(ranked) * GOOD_PART), 1)


def parallel_plot(metric: Metric, axes: Axes, ranked: Sequence[TrialRow]) -> ParallelPlot | None:
    """None for fewer than two axes or two trials. `ranked`: the trials with a number for the metric, the best first."""
    shown = axes.shown
    if len(shown) < 2 or len(ranked) < 2:
        return None
    drawn = tuple(DrawnAxis(axis, x_of(place, len(shown)), *axis.ends) for place, axis in enumerate(shown))
    most = max(min(MOST_LINES, MOST_POINTS // len(shown)), 2)
    good = {each.number for each in ranked[: good_ones(ranked)]}
    lines = []
    trials = chosen(axes, ranked, most)
    for each, path in zip(trials, _paths(drawn, trials), strict=True):
        kind = BEST if each is ranked[0] else GOOD if each.number in good else REST
        kept = not axes.ranges or axes.keep(each)
        lines.append(Line(each.number, kind if kept else OUT, number(each.values[metric.name]), path))
    # What is looked for lies above the others.
    order = (OUT, REST, GOOD, BEST)
    return ParallelPlot(
        axes=drawn,
        lines=_markup(sorted(lines, key=lambda line: order.index(line.kind))),
        drawn=len(lines),
        count=len(ranked),
        words=_words(axes, ranked, len(lines)),
    )


def _markup(lines: Sequence[Line]) -> SafeString:
    """A template would take ten times as long for a thousand of them. Kinds, numbers and paths need no escape."""
    return mark_safe(
        "".join(
            f'<path class="line {line.kind}" data-trial="{line.number}" data-value="{escape(line.value)}" '
            f'd="{line.path}"></path>'
            for line in lines
        )
    )


def chosen(axes: Axes, ranked: Sequence[TrialRow], most: int) -> list[TrialRow]:
    """The best fifth, and a sample of the others; those inside of the ranges first."""
    if len(ranked) <= most:
        return list(ranked)
    best = ranked[: min(good_ones(ranked), max(most // 2, 1))]
    others = sorted(ranked[len(best) :], key=lambda each: crc32(b"%d" % each.number))
    if axes.ranges:
        others.sort(key=lambda each: not axes.keep(each))
    return [*best, *others[: most - len(best)]]


def _paths(drawn: Sequence[DrawnAxis], trials: Sequence[TrialRow]) -> list[str]:
    """The lines of these trials. They pass by the axes of parameters that their trial does not have."""
    columns = (steps(each.x, each.axis.places(trials)) for each in drawn)
    lines = ("L".join(filter(None, points)) for points in zip(*columns, strict=True))
    return [line and f"M{line}" for line in lines]


def _words(axes: Axes, ranked: Sequence[TrialRow], drawn: int) -> str:
    best = ranked[0]
    values = ((axis, axis.value(best)) for axis in axes.all)
    said = ", ".join(
        f"{axis.name} {parameter_text(value, axis.parameter.kind)}"
        for axis, value in values
        if value is not None
    )
    text = _("Parameters of {drawn} of {count} trials. The best, trial {number}, has {parameters}.")
    found = text.format(drawn=drawn, count=len(ranked), number=best.number, parameters=said)
    if not axes.ranges:
        return found
    kept = sum(axes.keep(each) for each in ranked)
    inside = ngettext(
        "{number} trial is inside of all ranges.", "{number} trials are inside of all ranges.", kept
    )
    return f"{found} {inside.format(number=kept)}"
