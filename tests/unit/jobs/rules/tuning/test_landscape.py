"""What the model expects over two parameters."""

from __future__ import annotations

import math
import random

from jobs.rules.tuning.search.landscape import CELLS, landscape
from jobs.rules.tuning.space import Condition, Kind, Parameter, Scale
from jobs.rules.tuning.study import Goal, Metric

LR = Parameter("lr", Kind.DOUBLE, 1e-4, 1.0, scale=Scale.LOG)
MOMENTUM = Parameter("momentum", Kind.DOUBLE, 0.0, 1.0)
KIND = Parameter(
    "kind", Kind.CATEGORICAL, values=("adam", "sgd"), conditions=(Condition(("sgd",), MOMENTUM),)
)
DEPTH = Parameter("depth", Kind.INTEGER, 1, 5)


def tried(count, goal):
    dice = random.Random(3)
    found = []
    for _ in range(count):
        kind = dice.choice(KIND.values)
        point = {"lr": 10 ** dice.uniform(-4, 0), "kind": kind, "depth": dice.randint(1, 5)}
        if kind == "sgd":
            point["momentum"] = dice.random()
        loss = (math.log10(point["lr"]) + 2) ** 2 + (0.5 if kind == "adam" else 0.0)
        found.append((point, loss if goal is Goal.MINIMIZE else -loss))
    return sorted(found, key=lambda each: each[1] if goal is Goal.MINIMIZE else -each[1])


def test_the_valley_is_where_it_is_and_values_have_the_units_of_the_metric():
    for goal, pick in ((Goal.MINIMIZE, min), (Goal.MAXIMIZE, max)):
        found = landscape((LR, KIND, DEPTH), Metric("m", goal), tried(80, goal), LR, KIND)
        assert len(found.across) == CELLS and found.up == ("adam", "sgd")
        best = pick(found.values[1])
        assert abs(math.log10(found.across[found.values[1].index(best)]) + 2) < 0.4 and abs(best) < 0.3
        assert pick(found.values[0][CELLS // 2], found.values[1][CELLS // 2]) == found.values[1][CELLS // 2]


def test_a_whole_number_has_each_of_its_values_once_and_one_cell_is_enough():
    found = landscape((LR, KIND, DEPTH), Metric("m"), tried(20, Goal.MAXIMIZE), DEPTH, LR)
    assert found.across == (1, 2, 3, 4, 5) and len(found.values) == CELLS
    assert all(len(row) == 5 and all(map(math.isfinite, row)) for row in found.values)


def test_the_same_rows_make_the_same_drawing():
    asked = ((LR, KIND, DEPTH), Metric("m"), tried(300, Goal.MAXIMIZE), LR, DEPTH)
    assert landscape(*asked) == landscape(*asked)
