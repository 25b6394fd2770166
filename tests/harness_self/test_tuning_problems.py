"""The problems of the tuning bench: no point is better than the best, and the best is where it should be."""

from __future__ import annotations

import random

import pytest
from numpy.random import PCG64, Generator

from jobs.rules.tuning.search.columns import Columns
from tests.bench import tuning
from tests.bench.tuning_problems import ACKLEY_AT, problems

PROBLEMS = problems()
BEST = {
    "Branin, 2": {"x0": 3.1415927, "x1": 2.275},
    "Hartmann, 6": dict(
        zip("012345", (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573), strict=True)
    ),
    "log Rosenbrock, 5": {str(place): 1.0 for place in range(5)},
    "Ackley, 10": {str(place): at for place, at in enumerate(ACKLEY_AT)},
    "mixed, 6 with a condition": {
        "rate": 10**-1.2,
        "optimizer": "sgd",
        "momentum": 0.9,
        "batch": 64.0,
        "depth": 5,
        "dropout": 0.15,
    },
    "cliff, 4 log scales": {"0": 10**-2.2, "1": 0.1, "2": 10**-3.6, "3": 0.01},
}


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_no_point_is_better_than_the_best(problem):
    columns = Columns(problem.parameters)
    points = [columns.point(codes) for codes in columns.random(Generator(PCG64(1)), 2_000)]
    assert min(problem.regret(point) for point in points) >= -1e-6


@pytest.mark.parametrize(
    "problem", [each for each in PROBLEMS if each.name in BEST], ids=lambda each: each.name
)
def test_the_best_point_has_no_regret(problem):
    point = {f"x{name}" if name.isdigit() else name: value for name, value in BEST[problem.name].items()}
    assert problem.regret(point) == pytest.approx(0.0, abs=2e-4)


def test_noise_is_measured_and_does_not_count():
    noisy = PROBLEMS[-1]
    point = {f"x{place}": 0.5 for place in range(6)}
    assert noisy.value(point, random.Random(1)) != noisy.loss(point)
    assert noisy.regret(point) == noisy.loss(point) - noisy.best


def test_our_figures_are_told_where_optuna_cannot_be_had(monkeypatch):
    monkeypatch.setattr(tuning, "optuna_samplers", dict)
    monkeypatch.setattr(tuning, "problems", lambda: [PROBLEMS[4]])
    # That part needs hosts.
    monkeypatch.setattr(tuning.trials_a_minute, "trials_a_minute", lambda options: ())
    options = type("Options", (), {"quick": True})
    [first, *times] = tuning.tuning(options)
    assert "Optuna is not installed" in first.reference and len(times) == 3
