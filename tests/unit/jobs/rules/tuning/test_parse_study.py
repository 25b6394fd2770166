"""Studies: what clients send is read, or refused with the names of the fields; nothing else ever happens."""

from __future__ import annotations

import copy
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.spec.custom_job import MAX_LABELS
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.tuning.parse_parameters import MAX_DEPTH, MAX_INTEGER
from jobs.rules.tuning.parse_study import parse_study
from jobs.rules.tuning.parse_tuning_job import parse_tuning_job
from jobs.rules.tuning.space import Condition, Kind, Parameter, Scale
from jobs.rules.tuning.study import (
    ALGORITHMS,
    GRID,
    LABEL,
    NOISES,
    EarlyStopping,
    Goal,
    Limit,
    Metric,
    Rule,
    Safety,
    Selection,
    StudySpec,
    StudyStopping,
    study_document,
)
from tests.unit.jobs.rules.tuning.spaces import doubles, integers, listed, spaces
from tests.unit.jobs.rules.views import examples

RATE = {"parameterId": "rate", "doubleValueSpec": {"minValue": 1e-5, "maxValue": 0.1}, "scaleType": 2}
OPTIMIZER = {
    "parameterId": "optimizer",
    "categoricalValueSpec": {"values": ["adam", "sgd"]},
    "conditionalParameterSpecs": [
        {
            "parentCategoricalValues": {"values": ["sgd"]},
            "parameterSpec": {"parameterId": "momentum", "discreteValueSpec": {"values": [0, 0.9]}},
        }
    ],
}
GOOD = {
    "displayName": "study",
    "studySpec": {"metrics": [{"metricId": "loss", "goal": "MINIMIZE"}], "parameters": [RATE, OPTIMIZER]},
    "maxTrialCount": 20,
    "parallelTrialCount": 4,
    "trialJobSpec": {
        "workerPoolSpecs": [
            {"replicaCount": 1, "containerSpec": {"imageUri": "host", "command": ["python3", "train.py"]}}
        ]
    },
}


def changed(path, value):
    """GOOD with one field set (or removed, by ...)."""
    document = copy.deepcopy(GOOD)
    *way, last = path
    place = document
    for name in way:
        place = place.setdefault(name, {}) if isinstance(place, dict) else place[name]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


def violations(document):
    with pytest.raises(InvalidDocument) as refused:
        parse_tuning_job(document)
    return {each.field: each.description for each in refused.value.violations}


def test_a_tuning_job_is_read():
    job = parse_tuning_job(GOOD)
    assert (job.display_name, job.max_trials, job.parallel_trials, job.max_failed_trials) == (
        "study",
        20,
        4,
        0,
    )
    assert job.study.metrics == (Metric("loss", Goal.MINIMIZE),)
    momentum = Parameter("momentum", Kind.DISCRETE, values=(0.0, 0.9))
    assert job.study.parameters == (
        Parameter("rate", Kind.DOUBLE, 1e-5, 0.1, scale=Scale.LOG),
        Parameter(
            "optimizer",
            Kind.CATEGORICAL,
            values=("adam", "sgd"),
            conditions=(Condition(("sgd",), momentum),),
        ),
    )
    assert job.trial_spec.pools[0].task.argv == ("python3", "train.py")


def test_what_googles_client_sends_is_read():
    """Snake case, enums as integers, zeros left out, integers as strings, nulls."""
    study = parse_study(
        {
            "metrics": [{"metric_id": "accuracy"}],
            "parameters": [
                {"parameter_id": "x", "double_value_spec": {"max_value": 1.0}, "scale_type": None},
                {
                    "parameter_id": "n",
                    "integer_value_spec": {"min_value": "1", "max_value": "8"},
                    "conditional_parameter_specs": [
                        {
                            "parent_int_values": {"values": ["2", 3.0]},
                            "parameter_spec": {"parameter_id": "m", "discrete_value_spec": {"values": [1.0]}},
                        }
                    ],
                },
            ],
            "algorithm": 3,
            "measurement_selection_type": 2,
            "convex_automated_stopping_spec": {"max_step_count": "100"},
        }
    )
    assert study.metrics == (Metric("accuracy", Goal.MAXIMIZE),)
    assert study.parameters[0] == Parameter("x", Kind.DOUBLE, 0.0, 1.0)
    assert study.parameters[1].conditions[0].values == (2, 3)
    assert (study.algorithm, study.selection) == (ALGORITHMS[3], Selection.BEST)
    assert study.early == EarlyStopping(Rule.CONVEX, max_steps=100)


P = ("studySpec", "parameters")
S = "study_spec"
RULES = [
    (("displayName",), "", "display_name", "required"),
    (("studySpec",), ..., "study_spec", "required"),
    (("studySpec", "metrics"), [], f"{S}.metrics", "required"),
    (("studySpec", "metrics"), [{"metricId": "a"}, {"metricId": "a"}], f"{S}.metrics", "unique"),
    (("studySpec", "metrics", 0, "metricId"), "my loss", f"{S}.metrics[0].metric_id", "whitespace"),
    (("studySpec", "metrics", 0, "metricId"), "a,b", f"{S}.metrics[0].metric_id", "comma"),
    (("studySpec", "metrics", 0, "safetyConfig"), {}, f"{S}.metrics", "optimized"),
    (
        ("studySpec", "metrics", 0, "safetyConfig"),
        {"desiredMinSafeTrialsFraction": 2},
        f"{S}.metrics[0].safety_config.desired_min_safe_trials_fraction",
        "from 0 to 1",
    ),
    (("studySpec", "metrics", 0, "goal"), "LOWER", f"{S}.metrics[0].goal", "MAXIMIZE"),
    (P, [], f"{S}.parameters", "at least one parameter"),
    (P, [RATE, RATE], f"{S}.parameters", "name of its own"),
    ((*P, 0, "parameterId"), "", f"{S}.parameters[0].parameter_id", "required"),
    ((*P, 0, "parameterId"), "learning rate", f"{S}.parameters[0].parameter_id", "whitespace"),
    ((*P, 0, "parameterId"), "a=b", f"{S}.parameters[0].parameter_id", "--name=value"),
    ((*P, 0, "doubleValueSpec"), ..., f"{S}.parameters[0].parameter_value_spec", "exactly one"),
    ((*P, 0, "integerValueSpec"), {}, f"{S}.parameters[0].parameter_value_spec", "exactly one"),
    ((*P, 0, "doubleValueSpec", "maxValue"), 0, f"{S}.parameters[0].double_value_spec.max_value", "below"),
    (
        (*P, 0, "doubleValueSpec", "maxValue"),
        "NaN",
        f"{S}.parameters[0].double_value_spec.max_value",
        "number",
    ),
    (
        (*P, 0, "doubleValueSpec", "maxValue"),
        "1e999",
        f"{S}.parameters[0].double_value_spec.max_value",
        "must be a number",
    ),
    ((*P, 0, "doubleValueSpec", "minValue"), 0, f"{S}.parameters[0].scale_type", "above 0"),
    ((*P, 1, "scaleType"), 1, None, None),
    ((*P, 1, "scaleType"), 2, f"{S}.parameters[1].scale_type", "left unset"),
    (
        (*P, 1, "categoricalValueSpec", "values"),
        ["sgd", "sgd"],
        f"{S}.parameters[1].categorical_value_spec.values",
        "repeat",
    ),
    (
        (*P, 1, "categoricalValueSpec", "values"),
        [],
        f"{S}.parameters[1].categorical_value_spec.values",
        "at least one value",
    ),
    (
        (*P, 1, "categoricalValueSpec", "defaultValue"),
        "lion",
        f"{S}.parameters[1].categorical_value_spec.default_value",
        "one of the values",
    ),
    (("studySpec", "algorithm"), 2, f"{S}.algorithm", "discreteValueSpec"),
    (("studySpec", "algorithm"), "TPE", f"{S}.algorithm", "GRID_SEARCH"),
    (("maxTrialCount",), ..., "max_trial_count", "required"),
    (("maxTrialCount",), 0, "max_trial_count", "required"),
    (("maxTrialCount",), -1, "max_trial_count", "from 1"),
    (("parallelTrialCount",), ..., "parallel_trial_count", "required"),
    (("maxFailedTrialCount",), 21, "max_failed_trial_count", "maxTrialCount, which is 20"),
    (("trialJobSpec",), ..., "trial_job_spec", "required"),
    (
        ("trialJobSpec", "workerPoolSpecs", 0, "replicaCount"),
        2,
        "trial_job_spec.worker_pool_specs[0].replica_count",
        "must be 1",
    ),
    (("trails",), [], "trails", "not a field"),
]


@pytest.mark.parametrize(("path", "value", "field", "words"), RULES)
def test_a_violation_names_the_field_and_the_cure(path, value, field, words):
    document = changed(path, value)
    if field is None:
        parse_tuning_job(document)
    else:
        assert words in violations(document)[field]


MOMENTUM = f"{S}.parameters[1].conditional_parameter_specs"
BELOW = "[0].parameter_spec"
CONDITION = (*P, 1, "conditionalParameterSpecs", 0)


@pytest.mark.parametrize(
    ("path", "value", "field", "words"),
    [
        (
            (*CONDITION, "parentCategoricalValues", "values"),
            ["lion"],
            "[0].parent_categorical_values.values[0]",
            "not a value",
        ),
        (
            (*CONDITION, "parentCategoricalValues", "values"),
            [],
            "[0].parent_categorical_values.values",
            "required",
        ),
        (
            (*CONDITION, "parentCategoricalValues"),
            ...,
            "[0].parent_value_condition",
            "parent_categorical_values",
        ),
        ((*CONDITION, "parentIntValues"), {"values": [1]}, "[0].parent_value_condition", "nothing else"),
        ((*CONDITION, "parameterSpec"), ..., f"{BELOW}.parameter_id", "required"),
        ((*CONDITION, "parameterSpec", "parameterId"), "optimizer", "", "below the one of this name"),
        (
            (*CONDITION, "parameterSpec", "discreteValueSpec", "values"),
            [0.9, 0.1],
            f"{BELOW}.discrete_value_spec.values",
            "increasing",
        ),
        (
            (*CONDITION, "parameterSpec", "discreteValueSpec", "values"),
            [0, 1e-11],
            f"{BELOW}.discrete_value_spec.values",
            "1e-10",
        ),
    ],
)
def test_conditions_are_checked(path, value, field, words):
    assert words in violations(changed(path, value))[f"{MOMENTUM}{field}"]


def test_parameters_of_one_name_need_disjoint_conditions():
    again = copy.deepcopy(OPTIMIZER["conditionalParameterSpecs"][0])
    twice = changed((*P, 1, "conditionalParameterSpecs"), [again, again])
    assert "disjoint" in violations(twice)[MOMENTUM]
    other = {**again, "parentCategoricalValues": {"values": ["adam"]}}
    assert parse_tuning_job(changed((*P, 1, "conditionalParameterSpecs"), [again, other]))
    apart = changed((*P, 0, "parameterId"), "momentum")
    assert "active together" in violations(apart)[f"{S}.parameters"]


def test_a_double_has_no_conditions():
    document = changed((*P, 0, "conditionalParameterSpecs"), OPTIMIZER["conditionalParameterSpecs"])
    found = violations(document)[f"{S}.parameters[0].conditional_parameter_specs[0].parent_value_condition"]
    assert "DOUBLE" in found


def test_parameters_that_are_nested_too_deep_are_refused():
    def nested(depth):
        below = [{"parentIntValues": {"values": [1]}, "parameterSpec": nested(depth - 1)}] if depth else []
        spec = {"minValue": "1", "maxValue": "2"}
        return {
            "parameterId": f"p{depth}",
            "integerValueSpec": spec,
            "conditionalParameterSpecs": below,
        }

    assert parse_tuning_job(changed(P, [nested(MAX_DEPTH - 1)]))
    assert any("too deep" in words for words in violations(changed(P, [nested(MAX_DEPTH)])).values())


def categories(count, name):
    return {
        "parameterId": name,
        "categoricalValueSpec": {"values": [f"value-{number}" for number in range(count)]},
    }


def test_more_categories_than_a_model_can_learn_from_are_refused():
    fits = [categories(1_000, "a"), categories(1_000, "b")]
    assert len(parse_tuning_job(changed(P, fits)).study.parameters) == 2
    words = violations(changed(P, [*fits, categories(1, "c")]))[f"{S}.parameters"]
    assert words.startswith("has more than 2000 categorical values in all parameters together")


def switched_on(count, values):
    """A parameter with conditions of so many different values each."""
    conditions = [
        {
            "parentIntValues": {"values": [str(place * values + number) for number in range(values)]},
            "parameterSpec": {"parameterId": "same", "discreteValueSpec": {"values": [place]}},
        }
        for place in range(count)
    ]
    spec = {"integerValueSpec": {"maxValue": str(count * values)}}
    return {"parameterId": "parent", **spec, "conditionalParameterSpecs": conditions}


def test_a_study_that_would_take_hours_to_compare_is_refused_at_once():
    began = time.process_time()
    words = violations(changed(P, [switched_on(99, 1_000)]))[f"{S}.parameters"]
    assert words == "has more than 2000 values in all conditions together."
    assert time.process_time() - began < 5


def test_as_many_values_of_conditions_as_are_possible_cost_little():
    document = changed(P, [switched_on(99, 20)])
    began = time.process_time()
    study = parse_tuning_job(document).study
    assert study.points == 99 * 20 + 1 and parse_study(study_document(study)) == study
    assert time.process_time() - began < 2
    words = violations(changed(P, [switched_on(99, 21)]))[f"{S}.parameters"]
    assert words == "has more than 2000 values in all conditions together."


def test_integers_that_json_cannot_hold_are_refused():
    document = changed(P, [{"parameterId": "n", "integerValueSpec": {"maxValue": str(MAX_INTEGER + 1)}}])
    assert f"{S}.parameters[0].integer_value_spec.max_value" in violations(document)


STOPPING = f"{S}.study_stopping_config"


@pytest.mark.parametrize(
    ("config", "field", "words"),
    [
        ({"maximumRuntimeConstraint": {}}, ".maximum_runtime_constraint", "exactly one"),
        (
            {"maximumRuntimeConstraint": {"maxDuration": "0s"}},
            ".maximum_runtime_constraint.max_duration",
            "more",
        ),
        ({"minimumRuntimeConstraint": {"endTime": "noon"}}, ".minimum_runtime_constraint.end_time", "a time"),
        ({"minNumTrials": 5, "maxNumTrials": 4}, ".max_num_trials", "minNumTrials, which is 5"),
        ({"maxDurationNoProgress": "1h"}, ".max_duration_no_progress", "3600s"),
        ({"maxNumTrialsNoProgress": -1}, ".max_num_trials_no_progress", "from 0"),
    ],
)
def test_what_ends_a_study_is_checked(config, field, words):
    document = changed(("studySpec", "studyStoppingConfig"), config)
    assert words in violations(document)[f"{STOPPING}{field}"]


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        (
            {"medianAutomatedStoppingSpec": {}, "decayCurveStoppingSpec": {}},
            "decay_curve_stopping_spec",
            "only one",
        ),
        (
            {"convexAutomatedStoppingSpec": {"learningRateParameterName": "lr"}},
            "convex_automated_stopping_spec.learning_rate_parameter_name",
            "not a parameter",
        ),
        (
            {"convexAutomatedStoppingSpec": {"maxStepCount": "5", "minStepCount": "6"}},
            "convex_automated_stopping_spec.min_step_count",
            "maxStepCount, which is 5",
        ),
        (
            {
                "medianAutomatedStoppingSpec": {},
                "metrics": [{"metricId": "a"}, {"metricId": "b"}],
            },
            "median_automated_stopping_spec",
            "several",
        ),
        (
            {"medianAutomatedStoppingSpec": {"maxStepCount": 5}},
            "median_automated_stopping_spec.maxStepCount",
            "not a field",
        ),
    ],
)
def test_what_stops_trials_is_checked(fields, field, words):
    found = violations({**GOOD, "studySpec": {**GOOD["studySpec"], **fields}})
    assert words in found[f"{S}.{field}"]


def test_a_label_that_trials_get_is_refused():
    labels = changed(("labels",), {LABEL: "7"})
    assert "Trainyard gives to each trial" in violations(labels)[f"labels.{LABEL}"]
    many = {f"label-{number}": "x" for number in range(MAX_LABELS)}
    assert violations(changed(("labels",), many))["labels"].startswith("has 64 entries; at most 63")
    many.popitem()
    assert len(parse_tuning_job(changed(("labels",), many)).labels) == 63


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "x", [], True])
def test_a_seed_that_is_none_is_refused_by_its_name(seed):
    assert set(violations(changed(("trainyard",), {"seed": seed}))) == {"trainyard.seed"}


@pytest.mark.parametrize(
    ("given", "seed"), [({}, None), ({"seed": None}, None), ({"seed": 0}, 0), ({"seed": "0"}, 0)]
)
def test_a_seed_may_be_left_to_chance(given, seed):
    assert parse_tuning_job(changed(("trainyard",), given)).seed == seed


def test_what_trainyard_says_about_a_study_may_come_back():
    again = {"reason": "Trial 3 waits.", "seed": "7"}
    assert parse_tuning_job(changed(("trainyard",), again)).seed == 7
    assert violations(changed(("trainyard",), {"reasons": "x"})) == {
        "trainyard.reasons": "is not a field of this message."
    }


def test_all_violations_are_reported_at_once():
    document = {**changed((*P, 0, "parameterId"), ""), "displayName": "", "maxTrialCount": 0}
    assert {"display_name", "max_trial_count", f"{S}.parameters[0].parameter_id"} <= set(violations(document))


LIMITS = st.one_of(
    st.none(),
    st.integers(1, 10**6).map(lambda seconds: Limit(seconds=float(seconds))),
    st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(
        lambda moment: Limit(moment=moment.replace(tzinfo=UTC))
    ),
)
COUNTS = st.integers(0, 50)


@st.composite
def early_stops(draw):
    rule = draw(st.sampled_from(Rule))
    if rule is not Rule.CONVEX:
        return EarlyStopping(rule, draw(st.booleans()))
    low = draw(COUNTS)
    return EarlyStopping(
        rule,
        draw(st.booleans()),
        low + draw(COUNTS),
        low,
        draw(st.integers(1, 9)),
        "",
        draw(st.booleans()),
    )


@st.composite
def studies(draw):
    parameters = draw(spaces())
    metrics = draw(st.integers(1, 2))
    safety = draw(st.one_of(st.none(), st.builds(Safety, st.floats(-1, 1), st.floats(0, 1))))
    goal = st.sampled_from(Goal)
    own = tuple(Metric(f"m{number}", draw(goal)) for number in range(metrics))
    watched = (Metric("safe", draw(goal), safety),) if safety else ()
    least = draw(COUNTS)
    stopping = StudyStopping(
        draw(st.booleans()),
        draw(LIMITS),
        draw(LIMITS),
        least,
        draw(st.sampled_from([0, least + 1])),
        draw(COUNTS),
        draw(st.sampled_from([None, 30.5])),
    )
    return StudySpec(
        own + watched,
        parameters,
        draw(st.sampled_from([ALGORITHMS[0], ALGORITHMS[3]])),
        draw(st.sampled_from(list(NOISES.values()))),
        draw(st.sampled_from(Selection)),
        draw(st.sampled_from([None, stopping])),
        draw(early_stops()) if metrics == 1 and draw(st.booleans()) else None,
    )


@examples(200)
@given(studies())
def test_the_canonical_document_means_the_same_study(study):
    assert parse_study(study_document(study)) == study


@examples(150)
@given(st.one_of(doubles(), integers(), listed()), st.data())
def test_a_default_is_kept(parameter, data):
    value = parameter.low if not parameter.values else data.draw(st.sampled_from(parameter.values))
    document = study_document(StudySpec((Metric("m"),), (parameter,)))
    [spec] = [spec for name, spec in document["parameters"][0].items() if name.endswith("ValueSpec")]
    spec["defaultValue"] = value
    assert parse_study(document).parameters[0].default == value


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PLACES = [
    ("studySpec",),
    ("studySpec", "metrics"),
    ("studySpec", "metrics", 0, "safetyConfig"),
    P,
    (*P, 0),
    (*P, 0, "doubleValueSpec"),
    (*P, 0, "doubleValueSpec", "maxValue"),
    (*P, 1, "categoricalValueSpec", "values"),
    (*P, 1, "conditionalParameterSpecs"),
    CONDITION,
    (*CONDITION, "parameterSpec"),
    (*CONDITION, "parentCategoricalValues"),
    ("studySpec", "studyStoppingConfig"),
    ("studySpec", "convexAutomatedStoppingSpec"),
    ("maxTrialCount",),
    ("trialJobSpec",),
]


@examples(400)
@given(st.sampled_from(PLACES), JUNK)
def test_whatever_comes_is_read_or_refused(path, junk):
    try:
        job = parse_tuning_job(changed(path, junk))
    except InvalidDocument as refused:
        assert all(each.field and each.description for each in refused.violations)
    else:
        assert parse_study(study_document(job.study)) == job.study


def test_grid_search_takes_what_can_be_counted():
    document = changed((*P, 0), {"parameterId": "n", "integerValueSpec": {"maxValue": 3}})
    document["studySpec"]["algorithm"] = GRID
    assert parse_tuning_job(document).study.algorithm == GRID


def test_a_sampler_of_optuna_is_named_beside_what_vertex_has():
    for name in ("TPE", "NSGA_II", "CMA_ES"):
        spec = {**GOOD["studySpec"], "trainyard": {"algorithm": name}}
        study = parse_study(spec)
        assert study.algorithm == name
        assert study_document(study)["trainyard"] == {"algorithm": name}
        assert parse_study(study_document(study)) == study
        # Beside the study too, where the rest of ours stands.
        assert parse_tuning_job({**GOOD, "trainyard": {"algorithm": name}}).study == study
    assert parse_study({**GOOD["studySpec"], "trainyard": {}}).algorithm == ALGORITHMS[0]


def test_samplers_of_optuna_are_refused_where_they_cannot_do_what_is_asked():
    def refused(**changes):
        with pytest.raises(InvalidDocument) as found:
            parse_study({**GOOD["studySpec"], **changes})
        return [each.field.removeprefix("study_spec.") for each in found.value.violations]

    own, two = {"algorithm": "CMA_ES"}, [{"metricId": "loss"}, {"metricId": "time"}]
    assert refused(trainyard={"algorithm": "BOHB"}) == ["trainyard.algorithm"]
    assert refused(trainyard={"sampler": "TPE"}) == ["trainyard.sampler"]
    assert refused(trainyard=own, algorithm="RANDOM_SEARCH") == ["trainyard.algorithm"]
    assert refused(trainyard=own, metrics=two) == ["trainyard.algorithm"]
    safe = [{"metricId": "loss"}, {"metricId": "time", "safetyConfig": {"safetyThreshold": 1.0}}]
    assert refused(trainyard={"algorithm": "TPE"}, metrics=safe) == ["trainyard.algorithm"]
    earlier = {"priorStudyNames": ["7"]}
    name = "transfer_learning_config.prior_study_names"
    assert refused(trainyard=own, transferLearningConfig=earlier) == [name]
