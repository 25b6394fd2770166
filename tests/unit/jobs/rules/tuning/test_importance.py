"""PED-ANOVA: which parameters matter for reaching the best trials."""

from __future__ import annotations

import random

import pytest

from jobs.rules.tuning.importance import importances
from jobs.rules.tuning.space import Condition, Kind, Parameter, Scale

LR = Parameter("lr", Kind.DOUBLE, 1e-4, 1.0, scale=Scale.LOG)
DEPTH = Parameter("depth", Kind.INTEGER, 1, 8)
MOMENTUM = Parameter("momentum", Kind.DOUBLE, 0.0, 1.0)
KIND = Parameter(
    "kind", Kind.CATEGORICAL, values=("adam", "sgd"), conditions=(Condition(("sgd",), MOMENTUM),)
)
SPACE = (LR, DEPTH, KIND)


def points(count, seed=1):
    dice = random.Random(seed)
    for _ in range(count):
        kind = dice.choice(KIND.values)
        below = {"momentum": dice.random()} if kind == "sgd" else {}
        yield {"lr": 10 ** dice.uniform(-4, 0), "depth": dice.randint(1, 8), "kind": kind, **below}


def ranked(cost, count=200):
    return sorted(points(count), key=cost)


@pytest.mark.parametrize(
    ("cost", "first"),
    [
        (lambda point: abs(point["lr"] - 0.001), "lr"),
        (lambda point: abs(point["depth"] - 3), "depth"),
        (lambda point: point["kind"] == "sgd", "kind"),
    ],
)
def test_what_decides_the_result_matters_most(cost, first):
    found = importances(SPACE, ranked(cost))
    assert max(found, key=found.get) == first and sum(found.values()) == pytest.approx(1.0)
    assert found[first] > 0.5


def test_a_parameter_below_a_condition_is_compared_among_the_trials_that_have_it():
    found = importances(SPACE, ranked(lambda point: abs(point.get("momentum", 1.5) - 0.9)))
    # All of the best trials have sgd, and among these the momentum decides.
    assert found["momentum"] > 0.4 and found["kind"] > found["lr"]
    assert importances((LR, MOMENTUM), [{"lr": 0.1 + index / 1000} for index in range(30)])["momentum"] == 0.0


def test_of_few_trials_and_of_a_parameter_with_one_value_nothing_is_said():
    assert importances(SPACE, ranked(lambda point: point["lr"], 9)) == {}
    only = Parameter("only", Kind.CATEGORICAL, values=("a",))
    assert importances((only,), [{"only": "a"}] * 20) == {}


def test_values_of_another_space_are_passed_over():
    rows = [{"lr": 0.01 * (index + 1), "depth": 99, "kind": "lion"} for index in range(20)]
    found = importances(SPACE, rows)
    assert found["lr"] == pytest.approx(1.0) and found["depth"] == found["kind"] == 0.0
