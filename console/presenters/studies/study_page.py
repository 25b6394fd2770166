"""The page of a study, as frozen values: its head, its tabs, its best trials. The number of queries is constant."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Count
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop, ngettext
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from agents.infra.sql import Parameter, SelectStatement
from agents.infra.text import visible
from console.auth import access
from console.presenters.badges import JOB, Badge
from console.presenters.jobs.job_page import Tab
from console.presenters.jobs.pipeline_links import NamedLink, models_of, pipeline_of
from console.presenters.metrics import reported_metrics
from console.presenters.studies import plots, trial_rows
from console.presenters.studies.asked import (
    FRONT_ACROSS,
    FRONT_UP,
    RESULTS,
    Choice,
    kept,
    metric_choices,
    others,
)
from console.presenters.studies.axes import axes_of
from console.presenters.studies.plots import Plots, ResultPlot
from console.presenters.studies.trial_rows import METRIC, TrialRow, TrialTable, parameter_text
from jobs.models import Trial, TuningJob
from jobs.rules.lifecycle.states import TERMINAL
from jobs.rules.tuning import measurements, space
from jobs.rules.tuning.arguments import arguments
from jobs.rules.tuning.study import ALGORITHMS, OPTUNA, Goal, Rule, StudySpec
from jobs.rules.tuning.trials import RUNNING, Ending, TrialState
from jobs.tuning import snapshot

OVERVIEW, PARAMETERS, CURVES, SPEC = "study", "study-parameters", "study-curves", "study-spec"
SCATTER, TIMELINE = "study-scatter", "study-timeline"
TABS = (
    (OVERVIEW, gettext_noop("Overview")),
    (PARAMETERS, gettext_noop("Parameters")),
    (SCATTER, gettext_noop("Scatter")),
    (CURVES, gettext_noop("Curves")),
    (TIMELINE, gettext_noop("Timeline")),
    (SPEC, gettext_noop("Specification")),
)
# Of several best trials, so many are shown.
MOST_BEST = 10
GOALS = {Goal.MAXIMIZE: gettext_noop("maximize {metric}"), Goal.MINIMIZE: gettext_noop("minimize {metric}")}
SEARCHES = {
    ALGORITHMS[0]: gettext_noop("Bayesian search"),
    ALGORITHMS[2]: gettext_noop("Grid search"),
    ALGORITHMS[3]: gettext_noop("Random search"),
    OPTUNA[1]: gettext_noop("TPE of Optuna"),
    OPTUNA[2]: gettext_noop("NSGA-II of Optuna"),
    OPTUNA[3]: gettext_noop("CMA-ES of Optuna"),
}
RULES = {
    Rule.MEDIAN: gettext_noop("below the median of the others"),
    Rule.DECAY_CURVE: gettext_noop("by the expected end of its curve"),
    Rule.CONVEX: gettext_noop("by a model of all curves"),
}
_states = SelectStatement(
    lambda: (
        Trial.objects.filter(tuning_job=Parameter("study"))
        .exclude(ending=Ending.HOSTS)
        .order_by()
        .values_list("state")
        .annotate(Count("pk"))
    )
)


@dataclass(frozen=True, slots=True)
class Counts:
    """`ended` of `asked` trials; `running`, `waiting`, and how many of the ended ones have no result."""

    ended: int
    asked: int
    running: int
    waiting: int
    infeasible: int


@dataclass(frozen=True, slots=True)
class StudyHead:
    id: int
    name: str
    project: str
    badge: Badge
    owner: str
    labels: tuple[tuple[str, str], ...]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    reason: str
    error: str
    cancel_by: str
    cancel_at: datetime | None
    counts: Counts
    pipeline: NamedLink | None
    models: tuple[NamedLink, ...]
    terminal: bool
    may_clone: bool
    may_cancel: bool
    may_delete: bool


@dataclass(frozen=True, slots=True)
class BestTrial:
    """`values`: of all metrics; `parameters`: (name, text); `command`: its arguments, as a shell takes them."""

    trial: TrialRow
    values: tuple[tuple[str, str], ...]
    parameters: tuple[tuple[str, str], ...]
    command: str


@dataclass(frozen=True, slots=True)
class StudyBody:
    """`best`: the best trial, or with several objectives those that no other one beats; `more_best` are not shown.

    `results`: the plot of each objective, with the address of the other scale, or "" where there is none.
    `all_trials`: the address without ranges. `metrics`: those by which lines may be ranked. `objectives`: which may
    be in the front, as they are and as they are shown; `of_front`: what the form repeats that chooses two of them.
    """

    best: tuple[BestTrial, ...]
    more_best: int
    several: bool
    plots: Plots
    results: tuple[tuple[ResultPlot, str], ...]
    table: TrialTable
    all_trials: str
    over: bool
    metrics: Sequence[Choice]
    objectives: tuple[tuple[str, str], ...]
    of_front: Sequence[tuple[str, str]]


def tabs(tuning_job: TuningJob, current: str, query: Mapping[str, str]) -> tuple[Tab, ...]:
    """Each leads on with what the address asks for: ranges, the metric, the order of the trials."""
    asked = urlencode(kept(query))
    return tuple(
        Tab(
            name, gettext(word), f"{reverse(name, args=[tuning_job.pk])}?{asked}".rstrip("?"), name == current
        )
        for name, word in TABS
    )


def head(tuning_job: TuningJob, user: User, trials: Sequence[TrialRow] | None = None) -> StudyHead:
    """`trials`: all of the study, where they are read already."""
    read = _states(study=tuning_job.pk) if trials is None else _states_of(trials).items()
    over = tuning_job.state in TERMINAL
    allowed = access.verbs(user, tuning_job)
    cancelling = tuning_job.cancel_requested_at is not None
    return StudyHead(
        id=tuning_job.pk,
        name=tuning_job.display_name,
        project=tuning_job.project.name,
        badge=JOB[tuning_job.state],
        owner=tuning_job.owner_name,
        labels=tuple(sorted(tuning_job.labels.items())),
        created_at=tuning_job.created_at,
        started_at=tuning_job.started_at,
        ended_at=tuning_job.ended_at,
        reason="" if over else shown(tuning_job.reason),
        error=shown(tuning_job.error_message),
        cancel_by=tuning_job.cancel_requested_by if cancelling else "",
        cancel_at=tuning_job.cancel_requested_at,
        counts=_counts(tuning_job, dict(read)),
        pipeline=pipeline_of(tuning_job.project.name, tuning_job=tuning_job.pk),
        models=models_of(tuning_job.project.name, training_pipeline__tuning_job=tuning_job.pk),
        terminal=over,
        may_clone=access.can(user, "submit", tuning_job.project),
        may_cancel=not over and not cancelling and "cancel" in allowed,
        may_delete=over and "delete" in allowed,
    )


def _states_of(trials: Sequence[TrialRow]) -> Counter[str]:
    """Without those that hosts failed under and that are tried again: they are in no count."""
    return Counter(each.state for each in trials if each.ending != Ending.HOSTS)


def _counts(tuning_job: TuningJob, states: Mapping[str, int]) -> Counts:
    """`states`: how many trials are in each."""
    infeasible = states.get(TrialState.INFEASIBLE, 0)
    return Counts(
        ended=infeasible + states.get(TrialState.SUCCEEDED, 0),
        asked=tuning_job.max_trials,
        running=sum(states.get(each, 0) for each in RUNNING),
        waiting=states.get(TrialState.REQUESTED, 0),
        infeasible=infeasible,
    )


def body(tuning_job: TuningJob, trials: Sequence[TrialRow], query: Mapping[str, str]) -> StudyBody:
    """`trials`: all of the study (`read_trials.py`)."""
    study = snapshot.study_of(tuning_job)
    best = best_numbers(study, trials)
    by_number = {each.number: each for each in trials}
    axes = axes_of(study, trials, query)
    here = reverse(OVERVIEW, args=[tuning_job.pk])
    drawn = plots.kept_plots(tuning_job, study, trials, best, axes)
    order = trial_rows.order_of(study, query)
    sort = {} if order == trial_rows.NUMBER else {"sort": order}
    return StudyBody(
        best=tuple(_best(study, by_number[each]) for each in best[:MOST_BEST]),
        more_best=max(len(best) - MOST_BEST, 0),
        several=len(study.objectives) > 1,
        plots=drawn,
        results=tuple((each, _other_scale(here, each, {**axes.query, **sort})) for each in drawn.results),
        table=trial_rows.table(tuning_job, study, trials, axes.inside(trials), best, query, axes.query, here),
        all_trials=f"{here}?{urlencode({**axes.without_ranges, **sort})}".rstrip("?") + "#parallel",
        over=tuning_job.state in TERMINAL,
        metrics=metric_choices(study, query, here),
        objectives=tuple((each.name, visible(each.name)) for each in study.objectives),
        of_front=others(query, FRONT_ACROSS, FRONT_UP),
    )


def _other_scale(here: str, plot: ResultPlot, asked: Mapping[str, str]) -> str:
    """The address that draws these results on the other scale."""
    if not plot.may_be_log:
        return ""
    scale = "linear" if plot.logarithmic else "log"
    return f"{here}?{urlencode({**asked, f'{RESULTS}{METRIC}{plot.metric}': scale})}#results"


def best_numbers(study: StudySpec, trials: Sequence[TrialRow]) -> list[int]:
    found = trial_rows.finals(trials)
    if len(study.objectives) > 1:
        return measurements.best_trials(study, found)
    best = measurements.best_trial(study, found)
    return [] if best is None else [best]


def _best(study: StudySpec, trial: TrialRow) -> BestTrial:
    kinds = {each.name: each.kind for each in space.flat(study.parameters)}
    known = {name: value for name, value in trial.parameters.items() if name in kinds}
    return BestTrial(
        trial=trial,
        values=tuple(
            (visible(each.name), reported_metrics.number(trial.values[each.name]))
            for each in study.metrics
            if each.name in trial.values
        ),
        parameters=tuple(
            (visible(name), parameter_text(value, kinds[name])) for name, value in known.items()
        ),
        command=shlex.join(arguments(known, study.parameters)),
    )


def goals(study: StudySpec) -> str:
    """What the study searches for, in words."""
    return ", ".join(gettext(GOALS[each.goal]).format(metric=visible(each.name)) for each in study.objectives)


def facts(tuning_job: TuningJob) -> tuple[tuple[str, str], ...]:
    """What was asked for, with the defaults."""
    study = snapshot.study_of(tuning_job)
    size = space.size(study.parameters)
    failed = tuning_job.max_failed_trials
    return (
        (_("Goal"), goals(study)),
        (_("Search"), gettext(SEARCHES[study.algorithm])),
        (_("Size of the space"), _("without end") if size is None else points_words(size)),
        (_("Trials"), str(tuning_job.max_trials)),
        (_("At once"), str(tuning_job.parallel_trials)),
        (_("Trials that may fail"), str(failed) if failed else _("chosen by Trainyard")),
        (_("Trials stopped early"), gettext(RULES[study.early.rule]) if study.early else _("never")),
        *_earlier(tuning_job),
        (_("Seed"), str(tuning_job.seed)),
        (_("Location"), tuning_job.location_name),
    )


def _earlier(tuning_job: TuningJob) -> tuple[tuple[str, str], ...]:
    """From which studies it learns."""
    rows = [
        ngettext("{name} ({id}): {count} trial", "{name} ({id}): {count} trials", len(each.trials)).format(
            name=visible(each.display_name), id=each.study_id, count=len(each.trials)
        )
        for each in tuning_job.prior_studies.all()
    ]
    return ((_("Learns from"), ", ".join(rows)),) if rows else ()


def points_words(size: int) -> str:
    return _("{number} points").format(number=size) if size < 10**9 else _("more than 10⁹ points")
