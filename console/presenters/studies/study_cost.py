"""What a study has cost, what more trials would cost and bring, and what rules that stop trials would have saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.utils import timezone
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from jobs.models import Trial, TuningJob
from jobs.rules.lifecycle.states import TERMINAL
from jobs.rules.time_text import time_text
from jobs.rules.tuning.price import Outlook, Price, hours_text, outlook_text, price_text
from jobs.rules.tuning.stopping.savings import NAMES, Shadow, shadow, shadow_text
from jobs.rules.tuning.study import Rule, StudySpec
from jobs.rules.tuning.trials import Trial as TriedTrial
from jobs.tuning import outlooks, price, snapshot

# Verdicts on so many trials are shown, the newest; the REST API has all.
MOST_ROWS = 50


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
class StudyCost:
    """`used`: GPU-hours until now, as text, empty without GPUs. `known` of `ended` trials have verdicts."""

    id: int
    used: str
    left: str
    outlook: tuple[str, ...]
    shadows: tuple[RuleShadow, ...]
    stopped: tuple[StoppedTrial, ...]
    known: int
    hidden: int = 0
    hours: Mapping[int, float] = field(default_factory=dict)


def study_cost(tuning_job: TuningJob) -> StudyCost:
    study = snapshot.study_of(tuning_job)
    rows = snapshot.judged_trials_of(tuning_job)
    hours = price.used_hours(tuning_job, timezone.now())
    over = tuning_job.state in TERMINAL
    begun = tuning_job.trials.exclude(started_at=None).count()
    found = [] if over and not begun else outlooks.read(tuning_job)
    counts = [max(tuning_job.max_trials - begun, 0), *(each.trials for each in found)]
    left, *prices = price.price_of_more(tuning_job, counts)
    shadows = shadows_of(study, rows, bool(left.gpus))
    stopped = [each for each in reversed(rows) if each.shadow]
    return StudyCost(
        id=tuning_job.pk,
        used=_used(hours, left),
        left="" if over or not left.trials else shown(price_text(left)),
        outlook=tuple(_outlooks(study, found, prices)),
        shadows=shadows,
        stopped=tuple(map(_stopped, stopped[:MOST_ROWS])),
        known=len(rows),
        hidden=max(len(stopped) - MOST_ROWS, 0),
        hours=hours,
    )


def shadows_of(study: StudySpec, rows: Sequence[Trial], gpus: bool) -> tuple[RuleShadow, ...]:
    """What each rule would have done with the trials whose verdicts are known. None for several objectives."""
    known = [each for each in rows if each.shadow is not None]
    if len(study.objectives) > 1 or not known:
        return ()
    tried = [snapshot.tried(each) for each in known]
    return tuple(_rule_shadow(study, rule, known, tried, gpus) for rule in Rule)


def _rule_shadow(
    study: StudySpec, rule: Rule, rows: Sequence[Trial], tried: Sequence[TriedTrial], gpus: bool
) -> RuleShadow:
    would_stop = {each.number: each.shadow[rule] for each in rows if each.shadow and rule in each.shadow}
    found = shadow(tried, study.objectives[0], would_stop)
    on = study.early is not None and study.early.rule is rule
    return RuleShadow(rule, found, shown(shadow_text(rule, found, gpus)), on)


def _stopped(trial: Trial) -> StoppedTrial:
    ran = (trial.ended_at - trial.started_at).total_seconds() if trial.started_at and trial.ended_at else 0.0
    text = _("{rule}: after {time}")
    return StoppedTrial(
        number=trial.number,
        ran=shown(time_text(ran)),
        verdicts=tuple(
            text.format(rule=shown(NAMES[Rule(rule)]), time=shown(time_text(seconds)))
            for rule, seconds in sorted((trial.shadow or {}).items())
        ),
    )


def _used(hours: Mapping[int, float], left: Price) -> str:
    if not left.gpus:
        return ""
    return _("{hours} GPU-hours until now").format(hours=hours_text(sum(hours.values())))


def _outlooks(study: StudySpec, found: Sequence[Outlook], prices: Sequence[Price]) -> Sequence[str]:
    return [
        shown(outlook_text(study.objectives[0], each, cost)) for each, cost in zip(found, prices, strict=True)
    ]
