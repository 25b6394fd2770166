"""The default search: a Gaussian process learns from the trials, and the point that promises most is next.

Everything is a function of the rows and a seed, made anew for each suggestion. Trials that still run count as if they
had the value that the model expects (kriging believer), so trials in parallel do not all try the same. Several metrics
are made one by random weights, drawn anew for each trial (Chebyshev), so the trials spread along the front. A metric
with a safety threshold multiplies what a point promises by the probability that it is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from jobs.rules.tuning.search.acquisition import log_chance, log_expected_improvement, normal_below
from jobs.rules.tuning.search.columns import Columns
from jobs.rules.tuning.search.gaussian_process import SAMPLES, Process, believing, given, learn_scales
from jobs.rules.tuning.search.rows import Expected, StudyRows, Suggestion
from jobs.rules.tuning.search.scales import Array
from jobs.rules.tuning.search.warping import Warp, warp_of
from jobs.rules.tuning.study import FIRST_TRIALS, Metric, StudySpec
from jobs.rules.tuning.trials import Trial, cost

# Of more trials the best half of so many and a random rest are kept; of earlier studies what the own trials leave.
MAX_POINTS = 250
RANDOM_CANDIDATES = 400
TOPS, CHANGES = 5, 30
WIDE, NARROW, SHARE = 0.2, 0.05, 0.5
STEPS = (0.1, 0.05, 0.02, 0.01, 0.004)
KEPT, NEIGHBOURS = 6, 16
# How much the other metrics count beside the worst weighted one.
_AUGMENTED = 0.05

Promise = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class _Data:
    """Points with their warped values, of which less is better."""

    codes: Array
    values: Array


def suggest_bayesian(
    study: StudySpec,
    rows: StudyRows,
    columns: Columns,
    dice: Generator,
    taken: Callable[[Array], bool],
    seed_of_model: int,
) -> Suggestion | None:
    """None while too little is known, or when all that it finds is `taken`. `seed_of_model`: the same for trials that
    are drawn with as many settled results, which therefore share what is learnt of scales."""
    if len(rows.ended) + sum(map(len, rows.prior)) < FIRST_TRIALS:
        return None
    weights = _weights(len(study.objectives), dice)
    known = _Known(study, rows, columns, weights, seed_of_model)
    running = columns.codes([trial.parameters for trial in rows.running])
    safe = _safe(study, rows.ended, columns, seed_of_model)
    models, best = _models(known, running, safe)
    promise = promise_of(models, best, columns, safe)
    data = known.data(len(rows.ended))
    tops = data.codes[np.argsort(data.values, kind="stable")[:TOPS]]
    for codes in searched(promise, columns, tops, dice):
        if not taken(codes):
            return Suggestion(
                columns.point(codes), _expected(study, rows.ended, models, best, columns.encode(codes[None]))
            )
    return None


def settled(count: int) -> int:
    """Of how many of these results the scales are learnt. They hardly change with one result more, and to learn them
    is most of the work: from 20 results on, one tenth more has to come."""
    return count - count % max(1, count // 10)


@dataclass(frozen=True, eq=False)
class _Known:
    """What a study has found, in the numbers of the model."""

    study: StudySpec
    rows: StudyRows
    columns: Columns
    weights: Array
    seed: int

    def data(self, count: int) -> _Data:
        """Of the first results of the study, so many, and of all of the earlier studies."""
        studies = [trials for trials in (self.rows.ended[:count], *self.rows.prior) if trials]
        return joined([objective(self.study, trials, self.columns, self.weights) for trials in studies])

    def processes(self) -> tuple[list[Process], _Data]:
        """The processes given all results, and these."""
        own = len(self.rows.ended)
        data, first = (thinned(self.data(count), self.seed, count) for count in (own, settled(own)))
        return _processes(data, first, self.columns, self.seed, SAMPLES), data


def _processes(data: _Data, first: _Data, columns: Columns, seed: int, samples: int) -> list[Process]:
    """The processes given `data`, with scales that are learnt from the first of them."""
    scales = learn_scales(columns.encode(first.codes), first.values, columns.groups, seed, samples)
    x = columns.encode(data.codes)
    return [given(x, data.values, each) for each in scales]


def _weights(count: int, dice: Generator) -> Array:
    shares = -np.log(np.maximum(dice.random(count), 1e-300))
    return np.asarray(shares / shares.sum())


def objective(study: StudySpec, trials: Sequence[Trial], columns: Columns, weights: Array) -> _Data:
    """One value for each trial, each study standardised on its own. A failed trial is as bad as the worst."""
    codes = columns.codes([trial.parameters for trial in trials])
    each = [warped(metric, trials)[1] for metric in study.objectives]
    if len(each) == 1:
        return _Data(codes, each[0])
    table = np.stack([values - values.min() for values in each], axis=1) * weights
    total = table.max(axis=1) + _AUGMENTED * table.sum(axis=1)
    return _Data(codes, warp_of(total).apply(total))


def warped(metric: Metric, trials: Sequence[Trial]) -> tuple[Warp, Array]:
    costs = np.array([cost(metric, trial.value(metric.name)) for trial in trials], dtype=float)
    warp = warp_of(costs)
    return warp, warp.apply(costs)


def _measured(metric: Metric, trials: Sequence[Trial], columns: Columns) -> _Data:
    return _Data(columns.codes([trial.parameters for trial in trials]), warped(metric, trials)[1])


def joined(data: Sequence[_Data]) -> _Data:
    codes = np.concatenate([each.codes for each in data])
    return _Data(codes, np.concatenate([each.values for each in data]))


def thinned(data: _Data, seed: int, own: int = 0) -> _Data:
    """`own`: so many at the beginning are the study's own. The other ones have the room that these leave: what an
    earlier study found may have changed since."""
    if len(data.values) <= MAX_POINTS:
        return data
    first = _thinned(data.values[:own], seed, MAX_POINTS)
    others = _thinned(data.values[own:], seed, MAX_POINTS - len(first))
    kept = np.r_[first, own + others]
    return _Data(data.codes[kept], data.values[kept])


def _thinned(values: Array, seed: int, most: int) -> NDArray[np.intp]:
    """The places of so many of them: the best half, and a random rest."""
    if len(values) <= most:
        return np.arange(len(values))
    order = np.argsort(values, kind="stable")
    best, rest = order[: most // 2], order[most // 2 :]
    kept: NDArray[np.intp] = np.r_[best, Generator(PCG64(seed)).permutation(rest)[: most - len(best)]]
    return kept


def _models(
    known: _Known, running: Array, safe: Sequence[tuple[Process, float]]
) -> tuple[list[Process], list[float]]:
    """The processes, believing what runs, and for each the best mean of what ended: robust against noise."""
    processes, data = known.processes()
    x = known.columns.encode(data.codes)
    allowed = np.full(len(x), True)
    for process, limit in safe:
        allowed &= process.mean(x) <= limit
    # What is not safe is no record to be broken, as long as something is.
    counted = x[allowed] if allowed.any() else x
    best = [float(process.mean(counted).min()) for process in processes]
    believed = known.columns.encode(running)
    return [believing(process, data.values, believed) for process in processes], best


def _safe(
    study: StudySpec, trials: Sequence[Trial], columns: Columns, seed: int
) -> list[tuple[Process, float]]:
    """For each metric with a threshold its process, and the warped threshold that a value must not be above."""
    found = []
    for metric in study.metrics:
        if metric.safety is not None and trials:
            warp, _ = warped(metric, trials)
            data, first = (
                thinned(_measured(metric, trials[:count], columns), seed)
                for count in (len(trials), settled(len(trials)))
            )
            limit = float(warp.apply(np.array([cost(metric, metric.safety.threshold)]))[0])
            [process] = _processes(data, first, columns, seed, samples=1)
            found.append((process, limit))
    return found


def promise_of(
    models: Sequence[Process], best: Sequence[float], columns: Columns, safe: Sequence[tuple[Process, float]]
) -> Promise:
    def promise(codes: Array) -> Array:
        x = columns.encode(codes)
        total = np.zeros(len(x))
        for process, least in zip(models, best, strict=True):
            total += log_expected_improvement(*process.mean_and_deviation(x), least)
        total /= len(models)
        for process, limit in safe:
            total += log_chance(*process.mean_and_deviation(x), limit)
        return total

    return promise


def searched(promise: Promise, columns: Columns, tops: Array, dice: Generator) -> Array:
    """Points, the most promising first: random ones and neighbours of the best trials, then local search with
    shrinking steps."""
    near = [columns.changed(dice, np.repeat(tops, CHANGES, axis=0), step, SHARE) for step in (WIDE, NARROW)]
    candidates = np.concatenate([columns.random(dice, RANDOM_CANDIDATES), *near])
    scores = promise(candidates)
    order = np.argsort(-scores, kind="stable")
    others = candidates[order[KEPT:]]
    kept, scores = candidates[order[:KEPT]], scores[order[:KEPT]]
    share = max(0.35, 1.5 / len(columns.parameters))
    for step in STEPS:
        moved = columns.changed(dice, np.repeat(kept, NEIGHBOURS, axis=0), step, share)
        candidates, scores = np.concatenate([kept, moved]), np.r_[scores, promise(moved)]
        order = np.argsort(-scores, kind="stable")
        kept, scores = candidates[order[:KEPT]], scores[order[:KEPT]]
    return np.concatenate([kept, candidates[order[KEPT:]], others])


def _expected(
    study: StudySpec, trials: Sequence[Trial], models: Sequence[Process], best: Sequence[float], x: Array
) -> Expected | None:
    """What the model says about the point, in the units of the metric. Of several metrics it says nothing."""
    if len(study.objectives) > 1 or not trials:
        return None
    [metric] = study.objectives
    warp, _ = warped(metric, trials)
    found = [process.mean_and_deviation(x) for process in models]
    mean = float(np.mean([each[0] for each, _ in found]))
    spread = float(np.sqrt(max(0.0, np.mean([each[0] ** 2 + one[0] ** 2 for each, one in found]) - mean**2)))
    chances = [normal_below((least - each) / one)[0] for (each, one), least in zip(found, best, strict=True)]
    value, one, other = (cost(metric, warp.invert(mean + side * spread)) for side in (0.0, -1.0, 1.0))
    return Expected(value, min(one, other), max(one, other), float(np.mean(chances)))
