"""The tab Parameters of a study: how much each parameter matters, and the result over each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from agents.infra.text import visible
from console.presenters.metrics.reported_metrics import number
from console.presenters.studies import contour
from console.presenters.studies.axes import Axis, axes_of
from console.presenters.studies.heights import across, dot, y_of
from console.presenters.studies.parallel import good_ones
from console.presenters.studies.plots import spread
from console.presenters.studies.read_trials import read_trials
from console.presenters.studies.trial_rows import PARAMETER, TrialRow, by_result, parameter_text
from jobs.models import TuningJob
from jobs.rules.tuning.importance import LEAST_TRIALS, best_count, importances
from jobs.rules.tuning.study import Metric, StudySpec
from jobs.tuning import snapshot

# All slices together.
MOST_SLICE_DOTS = 4_000
CONTOUR = "study-contour"


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


@dataclass(frozen=True, slots=True)
class Importance:
    """`share` and `width`: of 100. `trials`: how many have the parameter."""

    name: str
    share: int
    trials: int


@dataclass(frozen=True, slots=True)
class Importances:
    """`least`: so many results are needed; none are shown of fewer."""

    rows: tuple[Importance, ...]
    least: int
    words: str


@dataclass(frozen=True, slots=True)
class ParameterPlots:
    """`contour`: the address of the contour, which is drawn when somebody asks; empty: there is none."""

    metric: str
    importances: Importances
    slices: tuple[SlicePlot, ...]
    contour: str


def parameter_plots(tuning_job: TuningJob, query: Mapping[str, str]) -> ParameterPlots:
    study = snapshot.study_of(tuning_job)
    trials = read_trials(tuning_job)
    ranked = by_result(study, trials)
    axes = [each for each in axes_of(study, trials, {}).all if each.key.startswith(PARAMETER)]
    place = reverse(CONTOUR, args=[tuning_job.pk])
    asked = urlencode({name: query[name] for name in (contour.ACROSS, contour.UP) if query.get(name)})
    return ParameterPlots(
        metric=visible(study.objectives[0].name),
        importances=_importances(study, ranked),
        slices=tuple(_slices(study.objectives[0], axes, ranked)) if len(ranked) > 1 else (),
        contour=f"{place}?{asked}".rstrip("?") if contour.is_possible(study, ranked) else "",
    )


def _importances(study: StudySpec, ranked: Sequence[TrialRow]) -> Importances:
    found = importances(study.parameters, [each.parameters for each in ranked])
    order = sorted(found, key=lambda name: -found[name])
    rows = tuple(
        Importance(visible(name), round(100 * found[name]), sum(name in each.parameters for each in ranked))
        for name in order
    )
    words = ""
    if rows:
        words = ngettext(
            "{name} matters most for reaching the best {best} of {count} trial: {share} %.",
            "{name} matters most for reaching the best {best} of {count} trials: {share} %.",
            len(ranked),
        ).format(name=rows[0].name, best=best_count(len(ranked)), count=len(ranked), share=rows[0].share)
    return Importances(rows, LEAST_TRIALS, words)


def _slices(metric: Metric, axes: Sequence[Axis], ranked: Sequence[TrialRow]) -> Iterable[SlicePlot]:
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
        )


def _dots(metric: Metric, axis: Axis, trials: Sequence[TrialRow], low: float, high: float) -> str:
    values = (each.values[metric.name] for each in trials)
    places = zip(axis.places(trials), values, strict=True)
    return " ".join(
        dot(across(place), y_of(value, low, high)) for place, value in places if place is not None
    )
