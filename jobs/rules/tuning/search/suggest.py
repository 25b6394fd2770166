"""Which parameters the next trial of a study gets: a pure function of the study, its rows, a number and a seed.

No suggestion needs what an earlier one left in memory, so any process can make the next one after any crash. The same
rows and seed give the same parameters on one machine; another one may round otherwise. So a suggestion is stored before
it is used, and never made again.

A *search* is a function (`Search`), and `SEARCHES` names them as the field `algorithm` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import chain

from numpy.random import PCG64, Generator

from jobs.rules.tuning.search.bayesian import settled, suggest_bayesian
from jobs.rules.tuning.search.columns import Columns
from jobs.rules.tuning.search.rows import StudyRows, Suggestion
from jobs.rules.tuning.search.scales import Array
from jobs.rules.tuning.search.shuffle import shuffled
from jobs.rules.tuning.space import Point, flat, has_point, key, point_at, size
from jobs.rules.tuning.study import DEFAULT_ALGORITHM, GRID, NOISY, OPTUNA, RANDOM, StudySpec

# How often a random point is drawn again because it was tried before.
_REDRAWS = 20

# What Optuna raises where it cannot go on, such as in a space of hardly any width, or by its recursion over many
# generations. The next attempt would raise it again, so the trial gets a random point.
OF_OPTUNA = (ArithmeticError, AssertionError, RecursionError, ValueError)

# The number of the trial, counted from 1, and the seed of the study. None: the space is exhausted.
Search = Callable[[StudySpec, StudyRows, int, int], Suggestion | None]


def suggest(study: StudySpec, rows: StudyRows, number: int, seed: int) -> Suggestion | None:
    """The parameters of trial `number`. None: every point of the space was tried, and the study is over. What a trial
    was to try that hosts failed under comes first."""
    again = rows.to_try_again
    if again is not None:
        return Suggestion(again.parameters, memory=again.memory)
    return SEARCHES[study.algorithm](study, rows, number, seed)


def search_by_model(study: StudySpec, rows: StudyRows, number: int, seed: int) -> Suggestion | None:
    """The Gaussian process; random points while it knows too little."""
    first = _first(study, rows, number, seed)
    if first is not None or is_exhausted(study, rows):
        return first
    columns = Columns(study.parameters)
    dice, taken = _dice(seed, number, "model"), _taken(study, columns, rows)
    of_model = trial_seed(seed, settled(len(rows.ended)), "lengths")
    return suggest_bayesian(study, rows, columns, dice, taken, of_model) or _random_point(
        study, rows, number, seed
    )


def search_at_random(study: StudySpec, rows: StudyRows, number: int, seed: int) -> Suggestion | None:
    first = _first(study, rows, number, seed)
    if first is not None or is_exhausted(study, rows):
        return first
    return _random_point(study, rows, number, seed)


def search_the_grid(study: StudySpec, rows: StudyRows, number: int, seed: int) -> Suggestion | None:
    """Trial k has point k, in an order that is shuffled by the seed: so the first trials lie all over the space. Where
    the study has default values, the first trial has these.

    Where another trial has that point, or the grid has no such point, the trial has the first one that nobody has: a
    trial that was cancelled before it had parameters leaves no hole.
    """
    total = study.points
    if total is None:
        raise ValueError("a space with a DOUBLE has no grid; parse_study refuses it")
    first = _first(study, rows, number, seed)
    if first is not None:
        return first
    tried = {key(point) for point in rows.tried}
    for place in chain([(number - 1) % total], range(min(total, len(tried) + 1))):
        point = point_at(study.parameters, shuffled(place, total, seed))
        if key(point) not in tried:
            return Suggestion(point)
    return None


def search_by_sampler(study: StudySpec, rows: StudyRows, number: int, seed: int) -> Suggestion | None:
    """One of Optuna's samplers."""
    first = _first(study, rows, number, seed)
    if first is not None or is_exhausted(study, rows):
        return first
    # Optuna is an optional package (pyproject.toml).
    samplers = import_module("jobs.rules.tuning.search.optuna_samplers")
    try:
        found: Suggestion = samplers.suggest_by_sampler(
            study, rows, trial_seed(seed, number, study.algorithm)
        )
    except OF_OPTUNA:
        return _random_point(study, rows, number, seed)
    tried = set() if study.noise == NOISY else {key(point) for point in rows.tried}
    return _random_point(study, rows, number, seed) if key(found.parameters) in tried else found


# Further samplers by name come here: each is one function of the same arguments.
SEARCHES: Mapping[str, Search] = {
    DEFAULT_ALGORITHM: search_by_model,
    RANDOM: search_at_random,
    GRID: search_the_grid,
    **dict.fromkeys(filter(None, OPTUNA.values()), search_by_sampler),
}


def is_exhausted(study: StudySpec, rows: StudyRows) -> bool:
    """Whether each point of the space was tried. A study with noisy measurements may try them again."""
    total = study.points
    if total is None or total > len(rows.tried):
        return False
    return len({key(point) for point in rows.tried if has_point(study.parameters, point)}) >= total


def trial_seed(seed: int, number: int, what: str = "") -> int:
    """The seed of a trial: two processes that draw for the same one draw the same."""
    text = f"{seed}/{number}/{what}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")


def _dice(seed: int, number: int, what: str) -> Generator:
    return Generator(PCG64(trial_seed(seed, number, what)))


def _first(study: StudySpec, rows: StudyRows, number: int, seed: int) -> Suggestion | None:
    """The first trial, where the study has default values."""
    if number != 1 or rows.tried or all(each.default is None for each in flat(study.parameters)):
        return None
    columns = Columns(study.parameters)
    return Suggestion(columns.point(columns.default(_dice(seed, number, "random"))))


def _taken(study: StudySpec, columns: Columns, rows: StudyRows) -> Callable[[Array], bool]:
    """Whether a point was tried. Where measurements are noisy, a point may be tried again."""
    tried = set() if study.noise == NOISY else {key(point) for point in rows.tried}
    return lambda codes: key(columns.point(codes)) in tried


def _random_point(study: StudySpec, rows: StudyRows, number: int, seed: int) -> Suggestion:
    """A random point. One that was tried is drawn again, while there are others."""
    columns = Columns(study.parameters)
    codes = columns.random(_dice(seed, number, "random"), _REDRAWS)
    taken = _taken(study, columns, rows)
    for row in codes:
        if not taken(row):
            return Suggestion(columns.point(row))
    return Suggestion(_untried(study, rows, seed) or columns.point(codes[0]))


def _untried(study: StudySpec, rows: StudyRows, seed: int) -> Point | None:
    """A point of a finite space that was not tried: among so many points and one more there is one."""
    tried = {key(point) for point in rows.tried}
    total = size(study.parameters) or 0
    for index in range(min(total, len(tried) + 1)):
        point = point_at(study.parameters, shuffled(index, total, seed))
        if key(point) not in tried:
            return point
    return None
