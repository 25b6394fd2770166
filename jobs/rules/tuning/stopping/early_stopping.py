"""Which trials are stopped early, and what each rule would have saved where it is off (*shadow*).

Whatever the rule, three things protect a trial: it is not stopped before it has `min_measurements` measurements (5,
unless a convex rule says another number), nor before more trials than this number have completed, nor while its best
value is as good as the best of theirs. Measurements of NaN or infinity are left out. Times are compared with times, and
steps with steps (`use_elapsed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.infra.texts import said
from jobs.rules.tuning.stopping.convex_rule import convex_stops
from jobs.rules.tuning.stopping.curves import Completed, Curve, completed, curve_of
from jobs.rules.tuning.stopping.decay_curve_rule import decay_curve_stops
from jobs.rules.tuning.stopping.median_rule import median_stops
from jobs.rules.tuning.study import EarlyStopping, Metric, Rule
from jobs.rules.tuning.trials import Trial, cost


@dataclass(frozen=True, slots=True)
class Shadow:
    """What a rule would have done: the share of the trials' time that it saves, and whether the best trial stays."""

    stopped: int
    saved_share: float
    keeps_best: bool


def stops(trial: Trial, others: Sequence[Trial], metric: Metric, early: EarlyStopping) -> bool:
    """Whether a running trial is to be stopped now, compared with the trials of its study."""
    curve = curve_of(trial, metric, early.use_elapsed)
    known = completed(others, metric, early.use_elapsed)
    if len(curve.at) < early.min_measurements or len(known) <= early.min_measurements:
        return False
    if curve.best <= min(each.final for each in known):
        return False
    return _stopped_by(early, curve, known)


def _stopped_by(early: EarlyStopping, curve: Curve, known: Sequence[Completed]) -> bool:
    if early.rule is Rule.MEDIAN:
        return median_stops(curve, known)
    if early.rule is Rule.CONVEX:
        return convex_stops(curve, known, early)
    return decay_curve_stops(curve, known)


def shadow(trials: Sequence[Trial], metric: Metric, would_stop: Mapping[int, float]) -> Shadow:
    """`would_stop`: after how many seconds the rule asked for the end of each of these trials, as it was noted then."""
    measured = [trial for trial in trials if trial.measured]
    total = sum(trial.seconds for trial in measured)
    saved = sum(max(0.0, trial.seconds - would_stop.get(trial.number, trial.seconds)) for trial in measured)
    best = min((cost(metric, trial.value(metric.name)) for trial in measured), default=None)
    keeps = best is None or any(
        cost(metric, trial.value(metric.name)) == best and trial.number not in would_stop
        for trial in measured
    )
    count = sum(trial.number in would_stop for trial in measured)
    return Shadow(count, saved / total if total else 0.0, keeps)


def shadow_text(rule: Rule, found: Shadow) -> str:
    """`convex would have saved 23 % of the time and kept the best trial`."""
    name = {Rule.MEDIAN: said("median"), Rule.CONVEX: said("convex"), Rule.DECAY_CURVE: said("decay curve")}[
        rule
    ]
    share = f"{100 * found.saved_share:.0f} %"
    if not found.stopped:
        return said("{rule} would have stopped no trial", rule=name)
    if found.keeps_best:
        return said(
            "{rule} would have saved {share} of the time and kept the best trial", rule=name, share=share
        )
    return said(
        "{rule} would have saved {share} of the time and stopped the best trial", rule=name, share=share
    )
