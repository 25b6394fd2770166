"""Earlier studies that a study learns from: their names, whether they fit, and what is taken from them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.tuning.parse_study import parse_study
from jobs.rules.tuning.prior import mismatch, named, taken
from jobs.rules.tuning.space import Kind, Parameter
from jobs.rules.tuning.study import Goal, Metric, StudySpec, study_document
from jobs.rules.tuning.trials import Measurement, Trial, TrialState

X = Parameter("x", Kind.DOUBLE, 0.0, 1.0)
STUDY = StudySpec((Metric("loss", Goal.MINIMIZE),), (X,))
LONG = "projects/nlp/locations/default/hyperparameterTuningJobs/42"


def document(**config):
    return {**study_document(STUDY), "transferLearningConfig": config}


def refused(**config):
    with pytest.raises(InvalidDocument) as found:
        parse_study(document(**config))
    return [each.field.removeprefix("study_spec.transfer_learning_config") for each in found.value.violations]


def trial(number, x=0.5, loss=1.0, state=TrialState.SUCCEEDED):
    return Trial(number, state, {"x": x}, final=Measurement(1, {"loss": loss}))


def test_earlier_studies_are_named_by_number_or_in_full():
    study = parse_study(document(priorStudyNames=["7", LONG]))
    assert study.prior == ("7", LONG)
    assert parse_study(study_document(study)) == study
    assert (named("7"), named(LONG)) == (("", 7), ("nlp", 42))
    assert parse_study(document(disableTransferLearning=True)).prior == ()


def test_what_is_no_name_of_a_study_is_refused():
    assert refused(priorStudyNames=["seven"]) == [".prior_study_names[0]"]
    assert refused(priorStudyNames=["7", LONG, "7"]) == [".prior_study_names"]
    assert refused(priorStudyNames=[str(each) for each in range(11)]) == [".prior_study_names"]
    assert refused(priorStudyNames=["7"], disableTransferLearning=True) == [".disable_transfer_learning"]
    assert refused(other=1) == [".other"]


@pytest.mark.parametrize("algorithm", ["RANDOM_SEARCH", "GRID_SEARCH"])
def test_searches_that_learn_nothing_have_no_earlier_studies(algorithm):
    parameters = [{"parameterId": "n", "integerValueSpec": {"minValue": "1", "maxValue": "3"}}]
    with pytest.raises(InvalidDocument) as found:
        parse_study({**document(priorStudyNames=["7"]), "algorithm": algorithm, "parameters": parameters})
    assert [each.field.rpartition(".")[2] for each in found.value.violations] == ["prior_study_names"]


def test_studies_fit_by_the_ids_of_their_parameters_and_metrics():
    assert mismatch(STUDY, STUDY) == ""
    assert mismatch(STUDY, replace(STUDY, parameters=(replace(X, high=9.0),))) == ""
    assert "y" in mismatch(STUDY, replace(STUDY, parameters=(X, replace(X, name="y"))))
    assert "does not measure loss" in mismatch(STUDY, replace(STUDY, metrics=(Metric("accuracy"),)))


def test_only_results_in_the_space_are_taken():
    given_ = [
        trial(1),
        trial(2, x=1.5),
        trial(3, state=TrialState.INFEASIBLE),
        trial(4, state=TrialState.ACTIVE),
        Trial(5, TrialState.SUCCEEDED, {"x": 0.5, "y": 1.0}, final=Measurement(1, {"loss": 1.0})),
        replace(trial(6), parameters={}),
    ]
    assert [each.number for each in taken(STUDY, given_)] == [1]


@given(st.lists(st.floats(width=16), max_size=30), st.integers(2, 12))
def test_of_too_many_the_best_half_is_taken(losses, most):
    rows = [trial(number, loss=loss) for number, loss in enumerate(losses, start=1)]
    found = taken(STUDY, rows, most)
    assert len(found) == min(len(rows), most) == len({each.number for each in found})
    costs = sorted(loss if math.isfinite(loss) else math.inf for loss in losses)
    own = sorted(loss if math.isfinite(loss) else math.inf for loss in (each.value("loss") for each in found))
    assert own[: most // 2] == costs[: most // 2]
