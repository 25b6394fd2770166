"""Eight problems with known optima, as programs that train show them: scales, conditions, categories, noise, cliffs.

Less is better in all of them. `regret` of a point is how much worse it truly is than the best one, without the noise.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

from jobs.rules.tuning.space import Condition, Kind, Parameter, Scale
from jobs.rules.tuning.study import Goal, Metric, StudySpec


@dataclass(frozen=True)
class Problem:
    """`value`: what a trial with this point measures. `dice` throws the noise."""

    name: str
    parameters: tuple
    loss: object
    best: float = 0.0
    noise: float = 0.0

    @property
    def study(self):
        return StudySpec((Metric("loss", Goal.MINIMIZE),), self.parameters)

    def value(self, point, dice):
        return self.loss(point) + (dice.gauss(0.0, self.noise) if self.noise else 0.0)

    def regret(self, point):
        return self.loss(point) - self.best


def doubles(count, low, high):
    return tuple(Parameter(f"x{place}", Kind.DOUBLE, low, high) for place in range(count))


def branin(point):
    x, y = point["x0"], point["x1"]
    turned = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return turned**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


HARTMANN_A = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
HARTMANN_P = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)  # fmt: skip


def hartmann(point):
    x = [point[f"x{place}"] for place in range(6)]
    return -sum(
        height * math.exp(-sum(a * (one - p) ** 2 for a, p, one in zip(row, middle, x, strict=True)))
        for height, row, middle in zip((1.0, 1.2, 3.0, 3.2), HARTMANN_A, HARTMANN_P, strict=True)
    )


def log_rosenbrock(point):
    x = [point[f"x{place}"] for place in range(5)]
    return math.log10(1 + sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in itertools.pairwise(x)))


# The optimum is nowhere in particular: some methods begin in the middle.
ACKLEY_AT = (1.3, -2.1, 0.4, 2.7, -0.9, 3.1, -1.6, 0.7, -2.8, 1.9)


def ackley(point):
    x = [point[f"x{place}"] - at for place, at in enumerate(ACKLEY_AT)]
    far = math.sqrt(sum(each * each for each in x) / 10)
    waves = sum(math.cos(2 * math.pi * each) for each in x) / 10
    return -20 * math.exp(-0.2 * far) - math.exp(waves) + 20 + math.e


OPTIMIZERS = {"sgd": (-1.2, 0.004), "adam": (-3.2, 0.0), "adagrad": (-2.0, 0.012), "lion": (-4.1, 0.006)}


def mixed(point):
    """A program that trains: the best learning rate depends on the optimizer, the batch and the momentum."""
    middle, worse = OPTIMIZERS[point["optimizer"]]
    middle += 0.25 * (math.log2(point["batch"]) - 6) / 2
    if "momentum" in point:
        middle -= 1.5 * (point["momentum"] - 0.9)
        worse += 0.02 * (point["momentum"] - 0.9) ** 2 / 0.81 - 0.006
    off = math.log10(point["rate"]) - middle
    loss = 0.05 + worse + 0.018 * off * off / (1 + 0.15 * off * off)
    loss += 0.0015 * abs(math.log2(point["batch"]) - 6) + 0.0012 * (point["depth"] - 5) ** 2
    return loss + 0.06 * (point["dropout"] - 0.15 - 0.03 * (point["depth"] - 5)) ** 2


MIXED = (
    Parameter("rate", Kind.DOUBLE, 1e-6, 1.0, scale=Scale.LOG),
    Parameter(
        "optimizer",
        Kind.CATEGORICAL,
        values=tuple(OPTIMIZERS),
        conditions=(Condition(("sgd",), Parameter("momentum", Kind.DOUBLE, 0.0, 0.99)),),
    ),
    Parameter("batch", Kind.DISCRETE, values=(16.0, 32.0, 64.0, 128.0, 256.0)),
    Parameter("depth", Kind.INTEGER, 1, 10),
    Parameter("dropout", Kind.DOUBLE, 0.0, 0.6),
)


def best_of_mixed():
    """By a fine grid: rates lie in the middle of their parabola, and so does the momentum."""
    found = math.inf
    for optimizer, batch, depth in itertools.product(OPTIMIZERS, MIXED[2].values, range(1, 11)):
        middle = OPTIMIZERS[optimizer][0] + 0.25 * (math.log2(batch) - 6) / 2
        dropout = min(0.6, max(0.0, 0.15 + 0.03 * (depth - 5)))
        point = {
            "optimizer": optimizer,
            "batch": batch,
            "depth": depth,
            "dropout": dropout,
            "rate": 10.0**middle,
        }
        if optimizer == "sgd":
            point["momentum"] = 0.9
        found = min(found, mixed(point))
    return found


def categories():
    """Six categories of five: each has an effect of its own, and neighbours have one together."""
    dice = random.Random(7)
    own = [[dice.random() for _ in range(5)] for _ in range(6)]
    pairs = [[[0.5 * dice.random() for _ in range(5)] for _ in range(5)] for _ in range(5)]

    def loss(point):
        at = [int(point[f"c{place}"][1:]) for place in range(6)]
        both = sum(pairs[place][at[place]][at[place + 1]] for place in range(5))
        return (sum(own[place][at[place]] for place in range(6)) + both) / 6

    names = tuple(f"v{number}" for number in range(5))
    every = itertools.product(names, repeat=6)
    best = min(loss({f"c{place}": name for place, name in enumerate(each)}) for each in every)
    parameters = tuple(Parameter(f"c{place}", Kind.CATEGORICAL, values=names) for place in range(6))
    return Problem("6 categories of 5", parameters, loss, best)


def cliff(point):
    """A narrow valley on four log scales, beside a plateau of runs that diverged."""
    a, b, c, d = (math.log10(point[f"x{place}"]) for place in range(4))
    if a + 0.5 * b > -2.2:
        return 10.0
    return (
        0.1
        + 0.2 * (a + 0.5 * b + 2.7) ** 2
        + 0.03 * (b + 1) ** 2
        + 0.02 * (c + 3 - 0.3 * d) ** 2
        + 0.02 * (d + 2) ** 2
    )


LOGS = tuple(Parameter(f"x{place}", Kind.DOUBLE, 1e-6, 1.0, scale=Scale.LOG) for place in range(4))


def problems():
    hartmann_best = -3.322368
    branin_at = (Parameter("x0", Kind.DOUBLE, -5.0, 10.0), Parameter("x1", Kind.DOUBLE, 0.0, 15.0))
    return [
        Problem("Branin, 2", branin_at, branin, 0.397887),
        Problem("Hartmann, 6", doubles(6, 0.0, 1.0), hartmann, hartmann_best),
        Problem("log Rosenbrock, 5", doubles(5, -2.048, 2.048), log_rosenbrock),
        Problem("Ackley, 10", doubles(10, -5.0, 5.0), ackley),
        Problem("mixed, 6 with a condition", MIXED, mixed, best_of_mixed()),
        categories(),
        Problem("cliff, 4 log scales", LOGS, cliff, 0.1),
        Problem("noisy Hartmann, 6", doubles(6, 0.0, 1.0), hartmann, hartmann_best, noise=0.3),
    ]
