"""Which measurement of a trial is its final one, and which trials are best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from jobs.rules.metrics.thinning import kept
from jobs.rules.tuning.stopping.curves import clipped
from jobs.rules.tuning.study import Selection, StudySpec
from jobs.rules.tuning.trials import Measurement, cost


def final_measurement(study: StudySpec, measured: Iterable[Measurement]) -> Measurement | None:
    """The one that counts, among those that have every objective. None: there is no such measurement."""
    names = [metric.name for metric in study.objectives]
    whole = [each for each in measured if all(name in each.metrics for name in names)]
    if not whole:
        return None
    first = study.objectives[0]
    if study.selection is Selection.BEST:
        # Of equal values the earlier one: it came at a lower price.
        return min(whole, key=lambda each: (cost(first, each.metrics[first.name]), each.step, each.elapsed_s))
    return max(whole, key=lambda each: (each.step, each.elapsed_s))


def thinned(
    measured: Sequence[Measurement], metric: str, final: Measurement | None, most: int
) -> list[Measurement]:
    """About `most` of these, evenly over the steps: with the first, the last, the lowest and the highest by this
    metric, and the final one."""
    stay = set(kept([(each.step, each.metrics.get(metric, math.nan)) for each in measured], most))
    last = None if final is None else final.step
    return [each for index, each in enumerate(measured) if index in stay or each.step == last]


def with_averages(study: StudySpec, measured: Sequence[Measurement]) -> list[Measurement]:
    """Each with the average of the first objective up to it, in the order of the rule that stops trials early
    (`curves.py`). When few of them are kept, the median rule still knows the averages of all."""
    metric = study.objectives[0].name
    by_time = study.early is not None and study.early.use_elapsed
    order = sorted(measured, key=lambda each: each.elapsed_s if by_time else each.step)
    found, total, count = {}, 0.0, 0
    for each in order:
        value = each.metrics.get(metric, math.nan)
        if math.isfinite(value):
            total, count = total + clipped(value), count + 1
        found[each.step] = total / count if count else None
    return [replace(each, average=found[each.step]) for each in measured]


def best_trial(study: StudySpec, finals: Mapping[int, Mapping[str, float]]) -> int | None:
    """The number of the best trial by the first objective; of equal ones the first. `finals`: the values of each
    trial that has some."""
    metric = study.objectives[0]
    found = [
        (cost(metric, values[metric.name]), number)
        for number, values in finals.items()
        if metric.name in values and not math.isnan(values[metric.name])
    ]
    return min(found)[1] if found else None


def best_trials(study: StudySpec, finals: Mapping[int, Mapping[str, float]]) -> list[int]:
    """The trials that no other one beats in every objective, by number. With one objective these are the best and its
    equals."""
    costs = [(costs, number) for number, values in finals.items() if (costs := _costs(study, values))]
    front: list[tuple[tuple[float, ...], int]] = []
    # In this order nothing that comes later beats what came before, and what is beaten is beaten by one of the front.
    for own, number in sorted(costs):
        # Of two objectives the last of the front has the least of the second, so it beats what any of them beats.
        rivals = front[-1:] if len(own) == 2 else front
        if not any(_beats(other, own) for other, _ in rivals):
            front.append((own, number))
    return sorted(number for _, number in front)


def _costs(study: StudySpec, values: Mapping[str, float]) -> tuple[float, ...]:
    """Empty: a value is missing, or is none."""
    names = [metric.name for metric in study.objectives]
    if any(name not in values or math.isnan(values[name]) for name in names):
        return ()
    return tuple(cost(metric, values[metric.name]) for metric in study.objectives)


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)
