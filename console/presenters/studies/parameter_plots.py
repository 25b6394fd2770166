"""The tab Parameters of a study: how much each parameter matters, and the result over each of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import get_language, ngettext

from agents.infra.shared_answers import SharedAnswers
from agents.infra.text import visible
from console.presenters.studies import contour
from console.presenters.studies.asked import Choice, chosen_metric, kept, metric_choices
from console.presenters.studies.axes import Inside, axes_of
from console.presenters.studies.read_trials import KEPT, read_trials, version_of
from console.presenters.studies.slices import SlicePlot, slices
from console.presenters.studies.trial_rows import PARAMETER, TrialRow, by_result
from jobs.models import TuningJob
from jobs.rules.tuning.importance import LEAST_TRIALS, best_count, importances
from jobs.rules.tuning.study import StudySpec
from jobs.tuning import snapshot

PAGE = "study-parameters"
CONTOUR = "study-contour"
# The plots of so many pages are kept.
STUDIES = 20


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
    """`contour`: the address of the contour, which is drawn when somebody asks; empty: there is none. `inside`: the
    trials that the slices show; importances are of all."""

    metric: str
    metrics: Sequence[Choice]
    inside: Inside
    importances: Importances
    slices: tuple[SlicePlot, ...]
    contour: str


_kept: SharedAnswers[Hashable, ParameterPlots] = SharedAnswers(KEPT, STUDIES)


def parameter_plots(tuning_job: TuningJob, query: Mapping[str, str]) -> ParameterPlots:
    """Drawn once for all who look at the same."""
    trials, asked = read_trials(tuning_job), kept(query)
    made_of = (tuning_job.pk, tuning_job.updated_at, get_language(), version_of(trials), tuple(asked.items()))
    return _kept.get(made_of, lambda: _drawn(tuning_job, trials, asked))


def _drawn(tuning_job: TuningJob, trials: Sequence[TrialRow], query: Mapping[str, str]) -> ParameterPlots:
    study = snapshot.study_of(tuning_job)
    metric = chosen_metric(study, query)
    ranked = by_result(metric, trials)
    axes = axes_of(study, trials, query)
    kept_ones = by_result(metric, axes.inside(trials)) if axes.ranges else ranked
    parameters = [each for each in axes.all if each.key.startswith(PARAMETER)]
    here, place = (reverse(name, args=[tuning_job.pk]) for name in (PAGE, CONTOUR))
    asked = urlencode(query)
    return ParameterPlots(
        metric=visible(metric.name),
        metrics=metric_choices(study, query, here),
        inside=axes.inside_of(trials, query, here),
        importances=_importances(study, ranked),
        slices=tuple(slices(metric, parameters, kept_ones)) if len(kept_ones) > 1 else (),
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
