"""What the address of a study's page asks for besides ranges: which metric its plots are of, and which two the front.

All tabs know the same names, so a link from one to another keeps what was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from agents.infra.text import visible
from jobs.rules.tuning.study import Metric, StudySpec

FROM, TO, HIDE, LOG, RESULTS = "from.", "to.", "hide.", "log.", "results."
# Of ranges and of scales: their names go on with the key of an axis.
OF_AXES = (FROM, TO, HIDE, LOG, RESULTS)
OF_METRIC, FRONT_ACROSS, FRONT_UP = "metric", "front.across", "front.up"
# The parameters of the contour, the order of the trials, and of how many more trials the outlook is.
ACROSS, UP, SORT, MORE = "across", "up", "sort", "more"
NAMES = (OF_METRIC, FRONT_ACROSS, FRONT_UP, ACROSS, UP, SORT, MORE)
_LONGEST = 400


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several metrics, as a link."""

    name: str
    url: str
    current: bool


def kept(query: Mapping[str, str]) -> dict[str, str]:
    """What each tab hands on to the others."""
    return {
        name: value
        for name, value in query.items()
        if value and len(value) <= _LONGEST and (name in NAMES or name.startswith(OF_AXES))
    }


def others(query: Mapping[str, str], *names: str) -> list[tuple[str, str]]:
    """What a form repeats that asks for these."""
    return [(name, value) for name, value in kept(query).items() if name not in names]


def chosen_metric(study: StudySpec, query: Mapping[str, str]) -> Metric:
    """Any metric of the study; if none is asked for, its first objective."""
    known = {each.name: each for each in study.metrics}
    return known.get(query.get(OF_METRIC, ""), study.objectives[0])


def chosen_pair(study: StudySpec, query: Mapping[str, str]) -> tuple[Metric, Metric] | None:
    """The two objectives of the front; None where there is one objective alone."""
    if len(study.objectives) < 2:
        return None
    known = {each.name: each for each in study.objectives}
    one, other = known.get(query.get(FRONT_ACROSS, "")), known.get(query.get(FRONT_UP, ""))
    one = one or next(each for each in study.objectives if each != other)
    if other is None or other == one:
        other = next(each for each in study.objectives if each != one)
    return one, other


def of_plots(study: StudySpec, query: Mapping[str, str]) -> dict[str, str]:
    """What is asked for of the plots and is not what they show anyway: all links of the page repeat it."""
    found: dict[str, str] = {}
    metric = chosen_metric(study, query)
    if metric != study.objectives[0]:
        found[OF_METRIC] = metric.name
    pair = chosen_pair(study, query)
    if pair is not None and pair != study.objectives[:2]:
        found |= {FRONT_ACROSS: pair[0].name, FRONT_UP: pair[1].name}
    of_other_tabs = {name: query[name] for name in (ACROSS, UP, MORE) if query.get(name)}
    return found | kept(of_other_tabs)


def metric_choices(study: StudySpec, query: Mapping[str, str], here: str) -> Sequence[Choice]:
    """The metrics as links; none where there is no choice."""
    if len(study.metrics) < 2:
        return ()
    current = chosen_metric(study, query)
    rest = dict(others(query, OF_METRIC))
    return [
        Choice(visible(each.name), f"{here}?{urlencode({**rest, OF_METRIC: each.name})}", each == current)
        for each in study.metrics
    ]
