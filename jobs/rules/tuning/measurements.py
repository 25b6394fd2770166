"""What trials measured, which measurement of a trial is its final one, and which trial is best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.rules.tuning.study import Goal, Metric, Selection, StudySpec


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a program reported for one step. `elapsed`: seconds since the trial began."""

    step: int
    elapsed: float
    values: Mapping[str, float]


def final_measurement(study: StudySpec, measured: Iterable[Measurement]) -> Measurement | None:
    """The one that counts, among those that have every objective. None: there is no such measurement."""
    names = [metric.name for metric in study.objectives]
    whole = [each for each in measured if all(name in each.values for name in names)]
    if not whole:
        return None
    first = study.objectives[0]
    if study.selection is Selection.BEST:
        # Of equal values the earlier one: it came at a lower price.
        return max(whole, key=lambda each: (rank(first, each.values[first.name]), -each.step, -each.elapsed))
    return max(whole, key=lambda each: (each.step, each.elapsed))


def rank(metric: Metric, value: float) -> float:
    """Higher is better, whatever the goal. NaN is worse than everything."""
    if math.isnan(value):
        return -math.inf
    return value if metric.goal is Goal.MAXIMIZE else -value


def best_trial(study: StudySpec, finals: Mapping[int, Mapping[str, float]]) -> int | None:
    """The number of the best trial by the first objective; of equal ones the first. `finals`: the values of each
    trial that has some."""
    metric = study.objectives[0]
    found = [
        (rank(metric, values[metric.name]), -number)
        for number, values in finals.items()
        if metric.name in values and not math.isnan(values[metric.name])
    ]
    return -max(found)[1] if found else None


def best_trials(study: StudySpec, finals: Mapping[int, Mapping[str, float]]) -> list[int]:
    """The trials that no other one beats in every objective, by number. With one objective these are the best and its
    equals."""
    ranked = {number: ranks for number, values in finals.items() if (ranks := _ranks(study, values))}
    return sorted(
        number for number, own in ranked.items() if not any(_beats(other, own) for other in ranked.values())
    )


def _ranks(study: StudySpec, values: Mapping[str, float]) -> tuple[float, ...]:
    """Empty: a value is missing, or is none."""
    names = [metric.name for metric in study.objectives]
    if any(name not in values or math.isnan(values[name]) for name in names):
        return ()
    return tuple(rank(metric, values[metric.name]) for metric in study.objectives)


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a >= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)
