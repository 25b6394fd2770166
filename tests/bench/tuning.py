"""How near a study comes to the best parameters with few trials: our search, random search, and Optuna's samplers.

All of them are asked alike: five trials run at once and end after random times; each new one is suggested with what is
known by then. Regret is that of the trial with the best measurement, without its noise; 0 is perfect.
"""

from __future__ import annotations

import heapq
import importlib
import random
import subprocess
import sys
import time
import warnings
from pathlib import Path

from jobs.rules.tuning.search.rows import StudyRows
from jobs.rules.tuning.search.suggest import SEARCHES, suggest
from jobs.rules.tuning.space import Kind, Scale, fill
from jobs.rules.tuning.study import RANDOM
from jobs.rules.tuning.trials import Measurement, Trial, TrialState
from tests.bench import trials_a_minute
from tests.bench.figures import Figure, percentile, short
from tests.bench.tuning_problems import problems

TRIALS, PARALLEL, SEEDS, SEEDS_OF_GP = 60, 5, 10, 3
MAX_CPU_MS = 500
BETTER_THAN_TPE = 6
ROOT = Path(__file__).resolve().parents[2]
# tools/install-optuna puts it there.
OPTUNA = ROOT / "var" / "optuna"


def tuning(options):
    trials, seeds, seeds_of_gp = (12, 1, 1) if options.quick else (TRIALS, SEEDS, SEEDS_OF_GP)
    samplers = optuna_samplers()
    wins = 0
    for problem in problems():
        ours = mean_regret(problem, Ours, seeds, trials)
        by_chance = mean_regret(problem, ByChance, seeds, trials)
        others = {
            name: mean_regret(problem, made, seeds_of_gp if name == "GPSampler" else seeds, trials)
            for name, made in samplers.items()
        }
        tpe = others.get("TPE")
        wins += tpe is not None and ours < tpe
        told = [f"random {by_chance:.3g}", *(f"{name} {regret:.3g}" for name, regret in others.items())]
        yield Figure(
            f"regret after {trials} trials: {problem.name}",
            f"{ours:.3g}",
            ", ".join(told) if samplers else f"{told[0]}; Optuna is not installed",
            ours / tpe if tpe else None,
            "better than random",
            ours < by_chance,
        )
    if samplers:
        aim = f"≥ {BETTER_THAN_TPE} of 8"
        yield Figure(
            "problems with less regret than Optuna's TPE", str(wins), "", None, aim, wins >= BETTER_THAN_TPE
        )
    yield from times(options)
    yield from trials_a_minute.trials_a_minute(options)


def times(options):
    """The processor time of one suggestion, made from bare rows while five trials run."""
    problem = next(each for each in problems() if each.name.startswith("mixed"))
    for count in (10, 100, 1_000):
        dice = random.Random(1)
        rows = StudyRows(tuple(finished(problem, number, dice) for number in range(1, count + 1)))
        took = []
        for number in range(2 if options.quick else 10):
            begin = time.process_time()
            suggest(problem.study, rows, count + 1 + number, 1)
            took.append((time.process_time() - begin) * 1000)
        p50 = percentile(took, 0.5)
        yield Figure(
            f"one suggestion after {count:,} trials, processor time",
            f"{short(p50)} ms",
            aim=f"≤ {MAX_CPU_MS} ms",
            met=p50 <= MAX_CPU_MS,
        )


def finished(problem, number, dice):
    point = SEARCHES[RANDOM](problem.study, StudyRows(()), number, 1).parameters
    return ended(number, point, problem.value(point, dice))


def ended(number, point, value):
    return Trial(number, TrialState.SUCCEEDED, point, final=Measurement(1, {"loss": value}))


def mean_regret(problem, made, seeds, trials):
    return sum(regret(problem, made(problem, seed), seed, trials) for seed in range(seeds)) / seeds


def regret(problem, asked, seed, trials):
    """One study, on a simulated clock. The durations and the noise of a seed are the same for everybody."""
    dice, running, now, begun = random.Random(seed), [], 0.0, 0
    best = (float("inf"), None)
    while running or begun < trials:
        while begun < trials and len(running) < PARALLEL:
            begun += 1
            point = asked.ask(begun)
            heapq.heappush(running, (now + dice.uniform(1, 2), begun, point))
        now, number, point = heapq.heappop(running)
        value = problem.value(point, dice)
        asked.tell(number, point, value)
        best = min(best, (value, point), key=lambda each: each[0])
    return problem.regret(best[1])


class Ours:
    """Each suggestion is made anew from the rows."""

    algorithm = None

    def __init__(self, problem, seed):
        self.study, self.seed = problem.study, seed
        self.search = SEARCHES[self.algorithm or self.study.algorithm]
        self.rows = {}

    def ask(self, number):
        point = self.search(self.study, StudyRows(tuple(self.rows.values())), number, self.seed).parameters
        self.rows[number] = Trial(number, TrialState.ACTIVE, point)
        return point

    def tell(self, number, point, value):
        self.rows[number] = ended(number, point, value)


class ByChance(Ours):
    algorithm = RANDOM


def optuna_samplers():
    """Optuna's default and its Gaussian process, by name; none where it cannot be installed."""
    if subprocess.run(["tools/install-optuna"], cwd=ROOT).returncode != 0:
        return {}
    # Behind our own packages, so that numpy is ours.
    if str(OPTUNA) not in sys.path:
        sys.path.append(str(OPTUNA))
    optuna = importlib.import_module("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", module="optuna")
    samplers = {"TPE": optuna.samplers.TPESampler, "GPSampler": optuna.samplers.GPSampler}

    def made(sampler):
        return lambda problem, seed: OfOptuna(optuna.create_study(sampler=sampler(seed=seed)), problem)

    return {name: made(sampler) for name, sampler in samplers.items()}


class OfOptuna:
    """A study of Optuna, kept in memory as its users keep it."""

    def __init__(self, study, problem):
        self.study, self.problem, self.running = study, problem, {}

    def ask(self, number):
        trial = self.running[number] = self.study.ask()
        return fill(self.problem.parameters, lambda parameter: asked_of(trial, parameter))

    def tell(self, number, point, value):
        self.study.tell(self.running.pop(number), value)


def asked_of(trial, parameter):
    log = parameter.scale is Scale.LOG
    if parameter.kind is Kind.DOUBLE:
        return trial.suggest_float(parameter.name, parameter.low, parameter.high, log=log)
    if parameter.kind is Kind.INTEGER:
        return trial.suggest_int(parameter.name, parameter.low, parameter.high, log=log)
    if parameter.kind is Kind.DISCRETE:
        return parameter.values[trial.suggest_int(parameter.name, 0, len(parameter.values) - 1)]
    return trial.suggest_categorical(parameter.name, parameter.values)
