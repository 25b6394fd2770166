"""The axes of a study, parameters and metrics, and the ranges of them that an address asks for.

`results.m.loss=log` (or `linear`) chooses the scale of the plot of its results.
`from.p.lr=0.01&to.p.lr=0.1` leaves out the trials whose `lr` is outside; `log.m.loss=1` draws an axis on a logarithmic
scale; `hide.p.lr=1` draws none. Listed values are ranges of their places in the list. The form of the page has a field
for each of them, and its script moves brushes that fill in the same fields.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlencode

from django.utils.translation import gettext as _

from agents.infra.text import visible
from console.forms.study_rows.parameter_rows import SCALES
from console.presenters.metrics.charts import WIDTH
from console.presenters.studies.asked import FROM, HIDE, LOG, RESULTS, TO, chosen_metric, kept, of_plots
from console.presenters.studies.trial_rows import METRIC, PARAMETER, TrialRow, parameter_text
from jobs.rules.tuning.arguments import text_of
from jobs.rules.tuning.search.unit_place import unit_places
from jobs.rules.tuning.space import Kind, Parameter, Scale, Value, flat
from jobs.rules.tuning.study import Metric, StudySpec
from jobs.rules.tuning.trials import TrialState

MOST_PARAMETERS, MOST_METRICS = 12, 2
SCALE_WORDS = ("linear", "log")
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Axis:
    """`key`: its name in the address. `parameter`: its values and scale; a metric has the bounds of what was measured.

    `low` and `high`: the ends of its range, as they were typed; empty: without end. `problem`: why it is not read.
    """

    key: str
    name: str
    parameter: Parameter
    low: str = ""
    high: str = ""
    hidden: bool = False
    log: bool = False
    problem: str = ""

    @property
    def is_range(self) -> bool:
        return bool(self.low or self.high) and not self.problem

    @property
    def options(self) -> tuple[str, ...]:
        """The values of a list, as the address has them."""
        return tuple(text_of(each, self.parameter.kind) for each in self.parameter.values)

    @property
    def may_be_log(self) -> bool:
        """Whether a person may ask for a logarithmic scale that the parameter does not have of its own."""
        own = self.log or self.parameter.scale is Scale.LINEAR
        return own and not self.parameter.values and self.parameter.low > 0

    @property
    def scale(self) -> str:
        linear = self.parameter.values or self.parameter.scale is Scale.LINEAR
        return "" if linear else str(dict(SCALES)[self.parameter.scale])

    @property
    def ends(self) -> tuple[str, str]:
        """The texts of the lowest and the highest value."""
        own = self.parameter
        low, high = (own.values[0], own.values[-1]) if own.values else (own.low, own.high)
        return parameter_text(low, own.kind), parameter_text(high, own.kind)

    @property
    def for_script(self) -> str:
        """What the script needs to say the value at a place of the axis."""
        own = self.parameter
        return json.dumps(
            {
                "values": self.options,
                "low": own.low,
                "high": own.high,
                "whole": own.kind is Kind.INTEGER,
                "scale": str(own.scale),
            }
        )

    def value(self, trial: TrialRow) -> Value | None:
        kind, _dot, name = self.key.partition(".")
        return (trial.parameters if kind == PARAMETER[0] else trial.values).get(name)

    def places(self, trials: Sequence[TrialRow]) -> list[float | None]:
        """Where these trials lie on the axis, from 0 to 1."""
        kind, _dot, name = self.key.partition(".")
        if kind == PARAMETER[0]:
            return unit_places(self.parameter, [each.parameters.get(name) for each in trials])
        return unit_places(self.parameter, [each.values.get(name) for each in trials])

    def keeps(self, trial: TrialRow) -> bool:
        """Whether the trial is inside of the range. One without a value is not."""
        value = self.value(trial)
        if value is None:
            return False
        if self.parameter.values:
            known = self.options
            text = text_of(value, self.parameter.kind)
            low, high = (
                known.index(each) if each else end
                for each, end in ((self.low, 0), (self.high, len(known) - 1))
            )
            return text in known[low : high + 1]
        if isinstance(value, str):
            return False
        return float(self.low or -math.inf) <= value <= float(self.high or math.inf)


@dataclass(frozen=True, slots=True)
class Inside:
    """`count` of `all` trials are inside of the ranges. `is_asked`: there are ranges. `rest`: the address without."""

    count: int
    all: int
    is_asked: bool
    rest: str


@dataclass(frozen=True, slots=True)
class Axes:
    """`all`: with those that are hidden. `more`: parameters without an axis, for want of room. `scales`: by the name of
    a metric the one that is asked for, for the plot of its results. `plots`: what else is asked for (`asked.py`)."""

    all: tuple[Axis, ...]
    more: int = 0
    scales: Mapping[str, str] = field(default_factory=dict)
    plots: Mapping[str, str] = field(default_factory=dict)
    ranges: tuple[Axis, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranges", tuple(each for each in self.all if each.is_range))

    @property
    def shown(self) -> tuple[Axis, ...]:
        return tuple(each for each in self.all if not each.hidden)

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(each.problem for each in self.all if each.problem)

    @property
    def query(self) -> dict[str, str]:
        """What the address asks for, for the links of the page."""
        scales = {f"{RESULTS}{METRIC}{name}": scale for name, scale in self.scales.items()}
        return self.asked | scales | dict(self.plots)

    @property
    def asked(self) -> dict[str, str]:
        """What it asks for of the axes."""
        found: dict[str, str] = {}
        for each in self.all:
            of_axis = {
                FROM: each.low,
                TO: each.high,
                HIDE: "1" if each.hidden else "",
                LOG: "1" if each.log else "",
            }
            found |= {f"{prefix}{each.key}": value for prefix, value in of_axis.items() if value}
        return found

    @property
    def without_ranges(self) -> dict[str, str]:
        return {name: value for name, value in self.query.items() if not name.startswith((FROM, TO))}

    def inside_of(self, trials: Sequence[TrialRow], query: Mapping[str, str], here: str) -> Inside:
        """What a tab says of the ranges. `here`: its address."""
        rest = {name: value for name, value in kept(query).items() if not name.startswith((FROM, TO))}
        return Inside(
            len(self.inside(trials)), len(trials), bool(self.ranges), f"{here}?{urlencode(rest)}".rstrip("?")
        )

    def keep(self, trial: TrialRow) -> bool:
        return all(each.keeps(trial) for each in self.ranges)

    def inside(self, trials: Sequence[TrialRow]) -> list[TrialRow]:
        """Those of the trials that are inside of all ranges."""
        return [each for each in trials if self.keep(each)] if self.ranges else list(trials)


def x_of(index: int, count: int) -> int:
    """Axes stand in the middle of equally wide columns: their names are the columns of a grid above them."""
    return round(WIDTH * (index + 0.5) / count)


def axes_of(study: StudySpec, trials: Iterable[TrialRow], query: Mapping[str, str]) -> Axes:
    """The first parameters of the study, then its objectives that have different results."""
    parameters = list({each.name: each for each in flat(study.parameters)}.values())
    found = [
        _axis(f"{PARAMETER}{each.name}", each.name, each, query) for each in parameters[:MOST_PARAMETERS]
    ]
    ended = [each for each in trials if each.state == TrialState.SUCCEEDED]
    for metric in _metrics(study, query):
        values = [each.values.get(metric.name, math.nan) for each in ended]
        numbers = [each for each in values if math.isfinite(each)]
        if numbers:
            own = Parameter(metric.name, Kind.DOUBLE, min(numbers), max(numbers))
            found.append(_axis(f"{METRIC}{metric.name}", metric.name, own, query))
    more = max(len(parameters) - MOST_PARAMETERS, 0)
    return Axes(tuple(found), more, _scales(study, query), of_plots(study, query))


def _metrics(study: StudySpec, query: Mapping[str, str]) -> Sequence[Metric]:
    """The first objectives; with the chosen metric, whichever it is."""
    first, chosen = study.objectives[:MOST_METRICS], chosen_metric(study, query)
    return first if chosen in first else (*first[: MOST_METRICS - 1], chosen)


def _scales(study: StudySpec, query: Mapping[str, str]) -> dict[str, str]:
    asked = {each.name: query.get(f"{RESULTS}{METRIC}{each.name}", "") for each in study.objectives}
    return {name: scale for name, scale in asked.items() if scale in SCALE_WORDS}


def _axis(key: str, name: str, parameter: Parameter, query: Mapping[str, str]) -> Axis:
    low, high = (query.get(f"{prefix}{key}", "").strip()[:_LONGEST] for prefix in (FROM, TO))
    axis = Axis(key, visible(name), parameter, low, high, hidden=query.get(f"{HIDE}{key}") == "1")
    axis = replace(axis, problem=_problem(axis))
    if axis.may_be_log and query.get(f"{LOG}{key}") == "1":
        axis = replace(axis, log=True, parameter=replace(parameter, scale=Scale.LOG))
    return axis


def _problem(axis: Axis) -> str:
    given = [each for each in (axis.low, axis.high) if each]
    if axis.parameter.values:
        places: Sequence[float | None] = [
            axis.options.index(each) if each in axis.options else None for each in given
        ]
        text = _("{name}: {value} is none of its values. The range is not applied.")
    else:
        places = [_number(each) for each in given]
        text = _("{name}: {value} is no number. The range is not applied.")
    for place, value in zip(places, given, strict=True):
        if place is None:
            return text.format(name=axis.name, value=f"“{visible(value)}”")
    if len(places) == 2 and places[0] > places[1]:  # type: ignore[operator]
        return _("{name}: the lowest value is above the highest. The range is not applied.").format(
            name=axis.name
        )
    return ""


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
