"""Optuna's samplers by name: made anew from rows for each suggestion."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.tuning.search import optuna_samplers
from jobs.rules.tuning.search.optuna_samplers import suggest_by_sampler
from jobs.rules.tuning.search.rows import StudyRows
from jobs.rules.tuning.search.suggest import suggest
from jobs.rules.tuning.space import Condition, Kind, Parameter, Scale, has_point, key
from jobs.rules.tuning.study import RANDOM, Goal, Metric
from jobs.rules.tuning.trials import Trial, TrialState
from tests.unit.jobs.rules.tuning.search.test_suggest import SMALL, X, Y, ended, rows_of, study_of
from tests.unit.jobs.rules.tuning.spaces import spaces
from tests.unit.jobs.rules.views import examples

SAMPLERS = ["TPE", "NSGA_II", "CMA_ES"]
# Parameters of one name under disjoint conditions, of every kind and scale.
MIXED = (
    Parameter("rate", Kind.DOUBLE, 1e-5, 0.1, scale=Scale.LOG),
    Parameter("keep", Kind.DOUBLE, 0.5, 0.999, scale=Scale.REVERSE_LOG),
    Parameter("units", Kind.INTEGER, 1, 512, scale=Scale.REVERSE_LOG),
    Parameter("width", Kind.DISCRETE, values=(1.0, 2.5, 9.0)),
    Parameter(
        "kind",
        Kind.CATEGORICAL,
        values=("sgd", "adam"),
        conditions=(
            Condition(("sgd",), Parameter("extra", Kind.DOUBLE, 0.0, 0.9)),
            Condition(("adam",), Parameter("extra", Kind.CATEGORICAL, values=("a", "b"))),
        ),
    ),
)


def bowl(point):
    return (point["x"] - 0.3) ** 2 + (point["y"] - 0.6) ** 2


def searched(study, loss, count, parallel=2, seed=1):
    """As tests of the other searches do it, and what a sampler remembers goes through JSON."""
    rows = {}
    for number in range(1, count + 1):
        found = suggest(study, StudyRows(tuple(rows.values())), number, seed)
        memory = found.memory and json.loads(json.dumps(dict(found.memory)))
        rows[number] = Trial(number, TrialState.ACTIVE, found.parameters, memory=memory)
        over = number - parallel + 1
        if over >= 1:
            done = ended(over, rows[over].parameters, loss=loss(rows[over].parameters))
            rows[over] = replace(done, memory=rows[over].memory)
    return list(rows.values())


@pytest.mark.parametrize("name", SAMPLERS)
def test_each_sampler_finds_the_bottom(name):
    found = searched(study_of(X, Y, algorithm=name), bowl, 60)
    first, last = (min(bowl(each.parameters) for each in part) for part in (found[:10], found[10:]))
    assert last < 0.005 and last <= first


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_same_rows_and_seed_give_the_same_point(name):
    study = study_of(X, Y, algorithm=name)
    rows = searched(study, bowl, 12)
    again = StudyRows(tuple(reversed(rows)))
    assert suggest(study, StudyRows(tuple(rows)), 13, 1) == suggest(study, again, 13, 1)
    assert suggest(study, StudyRows(tuple(rows)), 13, 2) != suggest(study, again, 13, 1)


def test_cma_es_goes_on_from_what_it_remembers():
    """Without the memory of its trials it would begin anew with each."""
    study = study_of(X, Y, algorithm="CMA_ES")
    rows = searched(study, bowl, 30)
    generations = [each.memory["cma:generation"] for each in rows if each.memory]
    assert generations[-1] >= 3
    forgotten = suggest(study, StudyRows(tuple(replace(each, memory=None) for each in rows)), 31, 1)
    assert forgotten.memory["cma:generation"] == 0
    assert suggest(study, StudyRows(tuple(rows)), 31, 1).memory["cma:generation"] >= generations[-1] > 0


@pytest.mark.parametrize("name", SAMPLERS)
def test_running_trials_are_known(name):
    study = study_of(X, Y, algorithm=name)
    rows = searched(study, bowl, 20)
    running = Trial(21, TrialState.ACTIVE, {"x": 0.3, "y": 0.6})
    found = suggest(study, StudyRows((*rows, running)), 22, 1)
    assert key(found.parameters) != key(running.parameters)


@pytest.mark.parametrize("name", SAMPLERS)
def test_parameters_of_every_kind_and_scale_and_of_one_name(name):
    study = study_of(*MIXED, algorithm=name)
    rows = searched(study, lambda point: point["rate"] + (point["kind"] == "sgd"), 25)
    assert all(has_point(MIXED, each.parameters) for each in rows)
    assert len({each.parameters["kind"] for each in rows}) == 2


def test_the_fine_end_of_a_reverse_log_scale_is_the_upper_one():
    study = study_of(Parameter("keep", Kind.DOUBLE, 0.001, 1.0, scale=Scale.REVERSE_LOG), algorithm="TPE")
    drawn = [suggest_by_sampler(study, StudyRows(()), seed).parameters["keep"] for seed in range(60)]
    # 1.001 - exp(u log 1000): a third of the draws lies above 0.991.
    assert sum(each > 0.95 for each in drawn) > 25 and min(drawn) < 0.5


@pytest.mark.parametrize("name", ["TPE", "NSGA_II"])
def test_several_metrics(name):
    metrics = (Metric("loss", Goal.MINIMIZE), Metric("accuracy"))
    study = study_of(X, Y, algorithm=name, metrics=metrics)
    rows = [ended(n, {"x": n / 30, "y": 0.5}, loss=n / 30, accuracy=n / 30) for n in range(1, 26)]
    assert has_point((X, Y), suggest(study, StudyRows(tuple(rows)), 26, 1).parameters)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_space_without_a_new_point_ends_the_study(name):
    study = study_of(*SMALL, algorithm=name)
    rows = searched(study, lambda point: point["n"], 6)
    assert len({key(each.parameters) for each in rows}) == 6
    assert suggest(study, StudyRows(tuple(rows)), 7, 1) is None


@examples(25)
@given(st.data())
@pytest.mark.parametrize("name", SAMPLERS)
def test_whatever_the_rows_are_nothing_raises(name, data):
    parameters = data.draw(spaces())
    study = study_of(*parameters, algorithm=name)
    rows = data.draw(rows_of(study))
    found = suggest(study, rows, 20, 1)
    assert found is None or has_point(parameters, found.parameters)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, 0.5])
@pytest.mark.parametrize("name", SAMPLERS)
def test_values_that_are_none_or_equal(name, value):
    study = study_of(X, Y, algorithm=name)
    rows = [ended(n, {"x": n / 30, "y": 0.5}, loss=value) for n in range(1, 26)]
    rows[3] = Trial(4, TrialState.INFEASIBLE, {"x": 0.1, "y": 0.1})
    assert has_point((X, Y), suggest(study, StudyRows(tuple(rows)), 26, 1).parameters)


def test_a_space_of_hardly_any_width_is_searched_to_the_end():
    """TPE raises ValueError in it, at each attempt."""
    narrow = Parameter("x", Kind.DOUBLE, 1e15, 1e15 + 1, scale=Scale.LOG)
    found = searched(study_of(narrow, algorithm="TPE"), lambda point: point["x"], 14, parallel=1)
    assert len(found) == 14 and all(has_point((narrow,), each.parameters) for each in found)


@pytest.mark.parametrize("raised", [RecursionError, ValueError, ZeroDivisionError, AssertionError])
def test_where_a_sampler_fails_the_trial_gets_a_random_point(monkeypatch, raised):
    def fails(*given):
        raise raised

    monkeypatch.setattr(optuna_samplers, "suggest_by_sampler", fails)
    study = study_of(X, Y, algorithm="NSGA_II")
    at_random = suggest(study_of(X, Y, algorithm=RANDOM), StudyRows(()), 7, 1)
    assert suggest(study, StudyRows(()), 7, 1) == at_random
