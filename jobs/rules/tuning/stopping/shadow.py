"""What each rule that stops trials early would have done, also where it is off (*shadow*).

The verdict on a trial is that of the rule as it would have been asked then: at the trial's own measurements, compared
with the trials that had completed by that moment. It is looked for at a few of the measurements, and against a part of
the trials where there are many, so that its cost is bounded.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jobs.rules.tuning.stopping.curves import Completed, Curve, completed, curve_of
from jobs.rules.tuning.stopping.early_stopping import stops_curve
from jobs.rules.tuning.study import EarlyStopping, Metric, Rule, StudySpec
from jobs.rules.tuning.trials import Trial, cost

# At so many measurements of a trial a rule is asked. That of decay curves learns a model each time.
LOOKS, LOOKS_OF_DECAY = 20, 8
# With so many completed trials it is compared.
MOST_COMPLETED = 150


@dataclass(frozen=True, slots=True)
class Ended:
    """A trial that has ended, with its start and its end in seconds of one clock."""

    trial: Trial
    began_s: float
    ended_s: float


def verdicts(study: StudySpec, own: Ended, others: Sequence[Ended]) -> dict[str, float]:
    """By the rule: after how many seconds it would have stopped this trial. `others`: those that ran to their end."""
    if len(study.objectives) != 1 or not own.trial.measured:
        return {}
    found = {}
    for rule in Rule:
        seconds = would_stop(own, others, study.objectives[0], _settings(study, rule))
        if seconds is not None:
            found[str(rule)] = seconds
    return found


def would_stop(own: Ended, others: Sequence[Ended], metric: Metric, early: EarlyStopping) -> float | None:
    """After how many seconds the rule would have stopped the trial; None: it lets it run."""
    curve = curve_of(own.trial, metric, early.use_elapsed)
    seconds = _seconds(own.trial, metric, early.use_elapsed)
    ends, known = [], []
    for each in sorted(others, key=lambda one: (one.ended_s, one.trial.number)):
        if each.trial.number != own.trial.number:
            found = completed([each.trial], metric, early.use_elapsed)
            ends += [each.ended_s] * len(found)
            known += found
    for index in _looks(len(curve.at), early):
        there = known[: bisect_right(ends, own.began_s + seconds[index])]
        seen = Curve(curve.at[: index + 1], curve.costs[: index + 1])
        if stops_curve(seen, _part(there), early):
            return min(seconds[index], own.trial.seconds)
    return None


def _settings(study: StudySpec, rule: Rule) -> EarlyStopping:
    """The rule as the study asks for it, or as it is where nothing is said."""
    if study.early is not None and study.early.rule is rule:
        return study.early
    return EarlyStopping(rule, use_elapsed=study.early is not None and study.early.use_elapsed)


def _seconds(trial: Trial, metric: Metric, use_elapsed: bool) -> list[float]:
    """When each point of its curve was measured, since its start."""
    found = [
        each
        for each in trial.measurements
        if math.isfinite(cost(metric, each.metrics.get(metric.name, math.nan)))
    ]
    found.sort(key=lambda each: each.elapsed_s if use_elapsed else float(each.step))
    return [each.elapsed_s for each in found]


def _looks(points: int, early: EarlyStopping) -> Iterable[int]:
    """At which of its points a rule is asked: evenly, from the first one that it may stop at to the last."""
    first = early.min_measurements - 1
    if points <= first:
        return []
    most = LOOKS_OF_DECAY if early.rule is Rule.DECAY_CURVE else LOOKS
    places = {points - 1 - place * (points - first) // most for place in range(most)}
    return sorted(place for place in places if place >= max(first, 0))


def _part(known: Sequence[Completed]) -> Sequence[Completed]:
    """The best, and of the others evenly, where there are many: no rule may stop what the best does not beat."""
    if len(known) <= MOST_COMPLETED:
        return known
    best = min(known, key=lambda each: each.final)
    return [best, *(known[place * len(known) // MOST_COMPLETED] for place in range(1, MOST_COMPLETED))]
