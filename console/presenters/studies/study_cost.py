"""What a study has cost, what more trials would cost and bring, and what rules that stop trials would have saved."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.urls import reverse
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from agents.infra.shared_answers import SharedAnswers
from console.presenters.studies.asked import MORE, Choice, chosen_metric, metric_choices, others
from console.presenters.studies.read_trials import KEPT
from console.presenters.studies.trial_rows import TrialRow
from jobs.models import TuningJob
from jobs.rules.lifecycle.states import TERMINAL
from jobs.rules.time_text import time_text
from jobs.rules.tuning.price import Outlook, hours_text, outlook_text, price_text
from jobs.rules.tuning.stopping.savings import NAMES, Result, Shadow, shadow, shadow_text
from jobs.rules.tuning.study import FIRST_TRIALS, Metric, Rule, StudySpec
from jobs.rules.tuning.trials import Ending, TrialState
from jobs.tuning import outlooks, price, snapshot

PAGE = "study"
# Verdicts on so many trials are shown, the newest; the REST API has all.
MOST_ROWS = 50
# What rules would have saved is kept of so many studies.
STUDIES = 30
# By the number of a trial: after how many seconds each rule would have stopped it.
Verdicts = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class RuleShadow:
    """`on`: the study asks for this rule."""

    rule: Rule
    found: Shadow
    text: str
    on: bool


@dataclass(frozen=True, slots=True)
class StoppedTrial:
    """`verdicts`: of the rules that would have stopped it, as text."""

    number: int
    ran: str
    verdicts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Saved:
    """What rules would have saved. Each verdict stays what it is, so how many there are says which."""

    shadows: tuple[RuleShadow, ...]
    stopped: tuple[StoppedTrial, ...]
    hidden: int


_kept: SharedAnswers[Hashable, Saved] = SharedAnswers(KEPT, STUDIES)


@dataclass(frozen=True, slots=True)
class StudyCost:
    """`used`: GPU-hours until now, as text, empty without GPUs. `known` of `ended` trials have verdicts.

    `outlook`: what more trials would bring; or in `no_outlook` why nothing is said of it, and in `no_shadows` why
    nothing is said of rules. `counts`: the numbers of trials that one may ask for, of which `more` was asked for.
    `metrics`: of which one, where there are several. `asked`: what a form repeats."""

    id: int
    used: str
    left: str
    outlook: tuple[str, ...]
    shadows: tuple[RuleShadow, ...]
    stopped: tuple[StoppedTrial, ...]
    known: int
    hidden: int
    no_outlook: str
    no_shadows: str
    counts: tuple[int, ...]
    more: int
    metrics: Sequence[Choice]
    asked: Sequence[tuple[str, str]]


def study_cost(tuning_job: TuningJob, trials: Sequence[TrialRow], query: Mapping[str, str]) -> StudyCost:
    """`trials`: all of the study (`read_trials.py`)."""
    study = snapshot.study_of(tuning_job)
    verdicts = verdicts_of(trials)
    over = tuning_job.state in TERMINAL
    begun = sum(each.started_at is not None and each.ending != Ending.HOSTS for each in trials)
    metric = chosen_metric(study, query)
    known_ones = [] if over and not begun else outlooks.read(tuning_job, metric.name)
    more = _asked_count(query, known_ones)
    found = [
        each for each in known_ones if each.trials == more or (not more and each.trials in outlooks.SHOWN)
    ]
    counts = [max(tuning_job.max_trials - begun, 0), *(each.trials for each in found)]
    left, *prices = price.price_of_more(tuning_job, counts, seconds_of(trials))
    known = _kept.get(
        (tuning_job.pk, get_language(), len(verdicts), bool(left.gpus)),
        lambda: _saved(study, trials, verdicts, bool(left.gpus)),
    )
    return StudyCost(
        id=tuning_job.pk,
        used=_used(tuning_job, trials) if left.gpus else "",
        left="" if over or not left.trials else shown(price_text(left)),
        outlook=tuple(shown(outlook_text(each, cost)) for each, cost in zip(found, prices, strict=True)),
        shadows=known.shadows,
        stopped=known.stopped,
        known=len(verdicts),
        hidden=known.hidden,
        no_outlook="" if found or (over and not begun) else _no_outlook(study, metric, trials),
        no_shadows="" if known.shadows else _no_shadows(study, trials),
        counts=tuple(each.trials for each in known_ones),
        more=more,
        metrics=metric_choices(study, query, reverse(PAGE, args=[tuning_job.pk])),
        asked=others(query, MORE),
    )


def _asked_count(query: Mapping[str, str], known: Sequence[Outlook]) -> int:
    """Of how many more trials the address asks; 0: of none in particular."""
    return next((each.trials for each in known if str(each.trials) == query.get(MORE)), 0)


def _no_outlook(study: StudySpec, metric: Metric, trials: Sequence[TrialRow]) -> str:
    if len(study.metrics) > len(study.objectives):
        return _(
            "What more trials would bring is not said: the model of that knows no thresholds, and this study has a "
            "metric with one."
        )
    results = sum(math.isfinite(each.values.get(metric.name, math.nan)) for each in trials)
    if results < FIRST_TRIALS:
        return _("What more trials would bring is said once {number} trials have a result.").format(
            number=FIRST_TRIALS
        )
    return _("What more trials would bring is worked out within a minute or two.")


def _no_shadows(study: StudySpec, trials: Iterable[TrialRow]) -> str:
    if len(study.objectives) > 1:
        return _("Rules that stop trials early know one goal. This study has several, so no rule was asked.")
    if any(each.ended_at is not None for each in trials):
        return _("What rules that stop trials early would save is worked out within a minute or two.")
    return _("No trial has ended yet that rules which stop trials early could be asked about.")


def _saved(study: StudySpec, trials: Sequence[TrialRow], verdicts: Verdicts, gpus: bool) -> Saved:
    stopped = [each for each in reversed(trials) if verdicts.get(each.number)]
    words = _Words(_("{rule}: after {time}"))
    return Saved(
        shadows=shadows_of(study, trials, verdicts, gpus),
        stopped=tuple(_stopped(each, verdicts[each.number], words) for each in stopped[:MOST_ROWS]),
        hidden=max(len(stopped) - MOST_ROWS, 0),
    )


def verdicts_of(trials: Iterable[TrialRow]) -> Verdicts:
    return {each.number: each.verdicts for each in trials if each.verdicts is not None}


def seconds_of(trials: Sequence[TrialRow]) -> list[float]:
    """The seconds of the trials that have a result."""
    return [
        max((each.ended_at - each.started_at).total_seconds(), 0.0)
        for each in trials
        if each.state == TrialState.SUCCEEDED and each.started_at and each.ended_at
    ]


def shadows_of(
    study: StudySpec, trials: Sequence[TrialRow], verdicts: Verdicts, gpus: bool
) -> tuple[RuleShadow, ...]:
    """What each rule would have done with the trials whose verdicts are known. None for several objectives."""
    if len(study.objectives) > 1 or not verdicts:
        return ()
    metric = study.objectives[0].name
    results = [
        Result(each.number, _seconds(each), each.values.get(metric, math.nan))
        for each in trials
        if each.number in verdicts and each.state == TrialState.SUCCEEDED and each.step is not None
    ]
    return tuple(_rule_shadow(study, rule, results, verdicts, gpus) for rule in Rule)


def _rule_shadow(
    study: StudySpec, rule: Rule, results: Sequence[Result], verdicts: Verdicts, gpus: bool
) -> RuleShadow:
    would_stop = {number: found[rule] for number, found in verdicts.items() if rule in found}
    found = shadow(results, study.objectives[0], would_stop)
    on = study.early is not None and study.early.rule is rule
    return RuleShadow(rule, found, shown(shadow_text(rule, found, gpus)), on)


@dataclass(frozen=True, slots=True)
class _Words:
    """The texts of the rows, in the language of the page. Each is asked for once."""

    text: str
    rules: dict[str, str] = field(default_factory=dict)
    times: dict[int, str] = field(default_factory=dict)

    def time(self, seconds: float) -> str:
        whole = round(seconds)
        return self.times.get(whole) or self.times.setdefault(whole, shown(time_text(whole)))

    def verdict(self, rule: str, seconds: float) -> str:
        name = self.rules.get(rule) or self.rules.setdefault(rule, shown(NAMES[Rule(rule)]))
        return self.text.format(rule=name, time=self.time(seconds))


def _stopped(trial: TrialRow, verdicts: Mapping[str, float], words: _Words) -> StoppedTrial:
    return StoppedTrial(
        number=trial.number,
        ran=words.time(_seconds(trial)),
        verdicts=tuple(words.verdict(rule, seconds) for rule, seconds in sorted(verdicts.items())),
    )


def _seconds(trial: TrialRow) -> float:
    """How long it has taken; 0 as long as that is not known."""
    return max(trial.seconds, 0.0) if trial.started_at and trial.ended_at else 0.0


def _used(tuning_job: TuningJob, trials: Sequence[TrialRow]) -> str:
    others = [each.number for each in trials if each.verdicts is None]
    hours = price.hours_in_all(tuning_job, timezone.now(), len(trials) - len(others), others)
    return _("{hours} GPU-hours until now").format(hours=hours_text(hours))
