"""How much better the best trial may become with some more trials, by the model that the default search has.

The rest of the search is played through many times. Each time the results of the trials are drawn from the model, one
after the other, the model learns from each, and the next point is where it then promises most, among some hundred
points. The best value until now is what the model takes it for, so a lucky measurement is no record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.random import PCG64, Generator

from jobs.rules.tuning.price import Outlook
from jobs.rules.tuning.search import bayesian
from jobs.rules.tuning.search.acquisition import log_expected_improvement
from jobs.rules.tuning.search.columns import Columns
from jobs.rules.tuning.search.gaussian_process import learn
from jobs.rules.tuning.search.rows import StudyRows
from jobs.rules.tuning.search.scales import Array
from jobs.rules.tuning.search.suggest import trial_seed
from jobs.rules.tuning.search.warping import Warp
from jobs.rules.tuning.study import DEFAULT_ALGORITHM, FIRST_TRIALS, StudySpec
from jobs.rules.tuning.trials import cost

# The points that may come next: the most promising ones, and some of the whole space.
NEAR, ANYWHERE = 50, 200
# How often the rest of the search is played for each sample of the model; so many of the running trials count.
PLAYED, MOST_RUNNING = 15, 30
LOW, HIGH = 0.1, 0.9
# The least variance that is worth a draw.
CERTAIN = 1e-9


def outlooks(study: StudySpec, rows: StudyRows, seed: int, counts: Sequence[int]) -> list[Outlook]:
    """For each count of further trials. Empty: the model says nothing about it."""
    one_metric = len(study.metrics) == 1 == len(study.objectives)
    known = [each for each in rows.ended if one_metric and math.isfinite(each.value(study.metrics[0].name))]
    if len(known) < FIRST_TRIALS:
        return []
    columns = Columns(study.parameters)
    seed_of_model = trial_seed(seed, len(rows.ended), "outlook")
    dice = Generator(PCG64(seed_of_model))
    studies = [trials for trials in (rows.ended, *rows.prior) if trials]
    each = [bayesian.objective(study, trials, columns, np.ones(1)) for trials in studies]
    data = bayesian.thinned(bayesian.joined(each), seed_of_model, len(rows.ended))
    learnt = learn(columns.encode(data.codes), data.values, columns.groups, seed_of_model)
    own = columns.encode(columns.codes([trial.parameters for trial in rows.ended]))
    best = [float(process.mean(own).min()) for process in learnt]
    promise = bayesian.promise_of(learnt, best, columns, [])
    near = bayesian.searched(promise, columns, data.codes[np.argmin(data.values)][None], dice)[:NEAR]
    candidates = columns.encode(np.concatenate([near, columns.random(dice, ANYWHERE)]))
    running = columns.encode(columns.codes([trial.parameters for trial in rows.running[:MOST_RUNNING]]))
    x = np.concatenate([running, candidates])
    learns = study.algorithm == DEFAULT_ALGORITHM
    records = [
        _record(mean, covariance, least, len(running), counts, learns, dice)
        for process, least in zip(learnt, best, strict=True)
        for mean, covariance in [(process.mean(x), process.covariance(x))]
        for _ in range(PLAYED)
    ]
    warp, _ = bayesian.warped(study.objectives[0], rows.ended)
    return [
        _outlook(study, warp, [one[0] for one in records], [one[1][count] for one in records], count)
        for count in counts
    ]


class Game:
    """What the model knows in one of the plays. `covariance`: before it, the same for all plays; of what each result
    takes off it one column is kept, because nobody asks for the whole of it."""

    def __init__(self, mean: Array, covariance: Array, results: int) -> None:
        self.mean, self._before = mean, covariance
        self._variance = covariance.diagonal().copy()
        self._learnt, self._count = np.empty((results, len(mean))), 0

    def result(self, place: int, dice: Generator) -> float:
        """The result at a point, drawn; the model has learnt from it then."""
        learnt = self._learnt[: self._count]
        own = self._before[:, place] - learnt[:, place] @ learnt
        if own[place] < CERTAIN:
            return float(self.mean[place])
        deviation = math.sqrt(float(own[place]))
        step = float(dice.standard_normal()) * deviation
        found = float(self.mean[place]) + step
        self.mean = self.mean + own * (step / own[place])
        self._learnt[self._count] = own / deviation
        self._variance -= self._learnt[self._count] ** 2
        self._count += 1
        return found

    def most_promising(self, best: float) -> int:
        deviation = np.sqrt(np.maximum(self._variance, CERTAIN))
        return int(np.argmax(log_expected_improvement(self.mean, deviation, best)))


def _record(
    mean: Array,
    covariance: Array,
    best: float,
    running: int,
    counts: Sequence[int],
    learns: bool,
    dice: Generator,
) -> tuple[float, dict[int, float]]:
    """The best value without further trials, and with each count of them."""
    game = Game(mean, covariance, running + max(counts))
    for place in range(running):
        best = min(best, game.result(place, dice))
    before, after = best, {}
    for number in range(1, max(counts) + 1):
        place = game.most_promising(best) if learns else int(dice.integers(running, len(mean)))
        best = min(best, game.result(place, dice))
        after[number] = best
    return before, after


def _outlook(
    study: StudySpec, warp: Warp, before: Sequence[float], after: Sequence[float], count: int
) -> Outlook:
    metric = study.objectives[0]
    now, then = (np.array([warp.invert(each) for each in part]) for part in (before, after))
    ends = [cost(metric, float(each)) for each in np.quantile(then, [LOW, HIGH])]
    return Outlook(
        count, cost(metric, float(now.mean())), cost(metric, float(then.mean())), min(ends), max(ends)
    )
