"""Optuna's samplers by name (`OPTUNA` of `study.py`): TPE, NSGA-II and CMA-ES.

Optuna keeps a study in memory; here it is made anew from the rows for each suggestion, with the finished and the
running trials. What a sampler notes with a trial beyond its parameters (the generation of NSGA-II and CMA-ES, the state
of CMA-ES) is the trial's `memory`: it is stored with the trial and given back, because nothing else could replace it.

What Optuna sees: costs, of which less is better. A trial that failed, or measured no finite number, is as bad as the
worst. UNIT_REVERSE_LOG_SCALE is a logarithmic scale of the mirrored value; a DISCRETE value is its place in the list.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from jobs.rules.tuning.search.rows import StudyRows, Suggestion
from jobs.rules.tuning.space import Kind, Parameter, Scale, Value, fill, flat, place_of
from jobs.rules.tuning.study import StudySpec
from jobs.rules.tuning.trials import Trial, by_number, cost

optuna.logging.set_verbosity(optuna.logging.ERROR)

_HUGE = 1e100
# Of NSGA-II. Optuna's 50 would be more than many studies have trials.
_POPULATION = 20


def suggest_by_sampler(study: StudySpec, rows: StudyRows, seed: int) -> Suggestion:
    """The next point, with what the sampler notes with its trial."""
    keys = _keys(study.parameters)
    with warnings.catch_warnings():
        # Some of its options are called experimental.
        warnings.simplefilter("ignore")
        memory = optuna.create_study(
            directions=["minimize"] * len(study.objectives), sampler=_sampler(study.algorithm, seed % 2**32)
        )
        memory.add_trials(_frozen(study, rows, keys))
        trial = memory.ask()
        point = fill(study.parameters, lambda each: _drawn(trial, keys[id(each)], each))
        kept = dict(memory._storage.get_trial(trial._trial_id).system_attrs)
    # What TPE notes is only for trials whose parameters are not known yet.
    return Suggestion(point, memory=kept if kept and study.algorithm != "TPE" else None)


def _keys(parameters: Sequence[Parameter]) -> dict[int, str]:
    """A name for each parameter, by its identity: two below different conditions may have one name."""
    return {id(each): f"{place}:{each.name}" for place, each in enumerate(flat(parameters))}


def _sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    if name == "TPE":
        return optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
    if name == "NSGA_II":
        return optuna.samplers.NSGAIISampler(seed=seed, population_size=_POPULATION)
    return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


def _frozen(study: StudySpec, rows: StudyRows, keys: Mapping[int, str]) -> list[optuna.trial.FrozenTrial]:
    """The trials in the order of their numbers, as Optuna has them."""
    ended = {trial.number for trial in rows.ended}
    costs = {trial.number: _costs(study, trial) for trial in rows.ended}
    worst = [
        max((each[place] for each in costs.values() if each[place] < math.inf), default=None)
        for place in range(len(study.objectives))
    ]
    found = []
    for trial in by_number([*rows.ended, *rows.running]):
        params, distributions = _params(study, trial, keys)
        values = None
        state = optuna.trial.TrialState.RUNNING
        if trial.number in ended:
            known = [
                w if value == math.inf else value for value, w in zip(costs[trial.number], worst, strict=True)
            ]
            values = [each for each in known if each is not None]
            complete = len(values) == len(known)
            state = optuna.trial.TrialState.COMPLETE if complete else optuna.trial.TrialState.FAIL
            values = values if complete else None
        found.append(
            optuna.trial.create_trial(
                state=state,
                values=values,
                params=params,
                distributions=distributions,
                system_attrs=dict(trial.memory or {}),
            )
        )
    return found


def _costs(study: StudySpec, trial: Trial) -> list[float]:
    costs = (cost(metric, trial.value(metric.name)) for metric in study.objectives)
    return [each if each == math.inf else max(-_HUGE, min(_HUGE, each)) for each in costs]


def _params(
    study: StudySpec, trial: Trial, keys: Mapping[int, str]
) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    params: dict[str, Any] = {}
    distributions: dict[str, BaseDistribution] = {}
    todo = list(study.parameters)
    while todo:
        parameter = todo.pop()
        value = trial.parameters.get(parameter.name)
        if value is None:
            continue
        key = keys[id(parameter)]
        distributions[key] = _distribution(parameter)
        params[key] = _inner(parameter, value)
        todo += [each.parameter for each in parameter.conditions if each.holds(value)]
    return params, distributions


def _distribution(parameter: Parameter) -> BaseDistribution:
    if parameter.kind is Kind.CATEGORICAL:
        return CategoricalDistribution(list(parameter.values))
    if parameter.kind is Kind.DISCRETE:
        return IntDistribution(0, len(parameter.values) - 1)
    log = parameter.scale is not Scale.LINEAR
    if parameter.kind is Kind.INTEGER:
        return IntDistribution(int(parameter.low), int(parameter.high), log=log)
    return FloatDistribution(parameter.low, parameter.high, log=log)


def _inner(parameter: Parameter, value: Value) -> Any:
    """A value as Optuna has it."""
    if parameter.kind is Kind.DISCRETE:
        return place_of(parameter, value)
    return _mirrored(parameter, value)


def _drawn(trial: optuna.Trial, key: str, parameter: Parameter) -> Value:
    found: Any = trial._suggest(key, _distribution(parameter))
    if parameter.kind is Kind.DISCRETE:
        return parameter.values[int(found)]
    value: Value = found
    return _mirrored(parameter, value)


def _mirrored(parameter: Parameter, value: Value) -> Value:
    if parameter.scale is not Scale.REVERSE_LOG or isinstance(value, str) or parameter.values:
        return value
    if parameter.kind is Kind.INTEGER:
        return int(parameter.low) + int(parameter.high) - int(value)
    return min(max(parameter.low + parameter.high - value, parameter.low), parameter.high)
