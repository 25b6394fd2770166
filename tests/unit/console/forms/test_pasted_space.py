"""A pasted space: what Vertex, Katib and Weights & Biases write becomes the parameters of a StudySpec."""

from __future__ import annotations

import json

import pytest

from console.forms.sample_study import SAMPLE_STUDY
from console.forms.study_rows.pasted_space import MAX_TEXT, UnreadableSpace, pasted_rows, read_space

LR = {
    "parameterId": "lr",
    "doubleValueSpec": {"minValue": 0.001, "maxValue": 0.1},
    "scaleType": "UNIT_LOG_SCALE",
}
KIND = {
    "parameterId": "kind",
    "categoricalValueSpec": {"values": ["adam", "sgd"]},
    "scaleType": "UNIT_LINEAR_SCALE",
}
BATCH = {"parameterId": "batch", "discreteValueSpec": {"values": [16, 32]}, "scaleType": "UNIT_LINEAR_SCALE"}
DEPTH = {
    "parameterId": "depth",
    "integerValueSpec": {"minValue": 1, "maxValue": 8},
    "scaleType": "UNIT_LINEAR_SCALE",
}
KATIB = """
apiVersion: kubeflow.org/v1beta1
spec:
  parameters:
    - name: lr
      parameterType: double
      feasibleSpace: {min: 0.001, max: 0.1, distribution: logUniform}
    - name: depth
      parameterType: int
      feasibleSpace: {min: 1, max: 8}
    - name: kind
      parameterType: categorical
      feasibleSpace: {list: [adam, sgd]}
"""
WANDB = """
method: bayes
parameters:
  lr: {distribution: log_uniform_values, min: 0.001, max: 0.1}
  depth: {min: 1, max: 8}
  kind: {values: [adam, sgd]}
  batch: {values: [32, 16]}
"""
GCLOUD = """
studySpec:
  metrics: [{metricId: loss, goal: MINIMIZE}]
  parameters:
    - parameter_id: kind
      categorical_value_spec: {values: [adam, sgd]}
      conditional_parameter_specs:
        - parent_categorical_values: {values: [sgd]}
          parameter_spec:
            parameter_id: depth
            integer_value_spec: {min_value: 1, max_value: 8}
"""


def test_each_way_of_writing_a_space_gives_the_same_parameters():
    assert read_space(KATIB) == [LR, DEPTH, KIND]
    assert read_space(WANDB) == [LR, DEPTH, KIND, BATCH]
    assert read_space(json.dumps([LR, KIND, BATCH, DEPTH])) == [LR, KIND, BATCH, DEPTH]
    below = {"parentCategoricalValues": {"values": ["sgd"]}, "parameterSpec": DEPTH}
    assert read_space(GCLOUD) == [{**KIND, "conditionalParameterSpecs": [below]}]
    sample = read_space(json.dumps(SAMPLE_STUDY))
    assert [each["parameterId"] for each in sample] == ["learning_rate", "layers"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "No parameters were found."),
        ("lr", "No parameters were found."),
        ("[]", "No parameters were found."),
        ("{a: [", "neither JSON nor YAML: line 1"),
        ("[" * 5000, "neither JSON nor YAML"),
        ("x" * (MAX_TEXT + 1), "too long"),
        ("[{name: lr}]", "A parameter needs a parameterId"),
        ("[{parameterId: lr}]", "lr: a parameter needs one of doubleValueSpec"),
        (
            "[{parameterId: lr, doubleValueSpec: {minValue: 0, maxValue: 1, step: 0.5}}]",
            "lr: the form has no field for step.",
        ),
        ("[{parameterId: lr, doubleValueSpec: 7}]", "lr: the form has no field for 7."),
        ("[{name: a, parameterType: real, feasibleSpace: {}}]", "must be one of double, int"),
        ("parameters: {a: {distribution: normal, min: 0, max: 1}}", "the distribution normal is not known"),
        ("parameters: {a: {mu: 0}}", "a: the form has no field for mu."),
        ("parameters: {a: 5}", "a: the form has no field for 5."),
        ("a: &x [1, 2]\nb: *x", "alias"),
        ("!!python/object/apply:os.system [id]", "neither JSON nor YAML"),
        ("[!!bool x, !!int '']", "neither JSON nor YAML"),
        ("[!!timestamp x]", "neither JSON nor YAML"),
        (f"a: {'1:' * 200}1.5", "neither JSON nor YAML"),
        ("parameters: {lr: {1: 2}}", "lr: the form has no field for 1."),
        ("parameters: {lr: {1: 2, foo: 3}}", "lr: the form has no field for 1."),
        (f"parameters: {{lr: {{values: [0x{'F' * 300}]}}}}", "a value that no parameter can have"),
        (f"parameters: {{lr: {{values: [a, 0x{'F' * 5000}]}}}}", "a value that no parameter can have"),
        (f"parameters: {{lr: {{min: 0x{'F' * 5000}}}}}", "a value that no parameter can have"),
        ('parameters: {lr: {values: ["\\ud800"]}}', "neither JSON nor YAML"),
        (json.dumps([{**DEPTH, "conditionalParameterSpecs": 5}]), "a value that no parameter can have"),
        (json.dumps([{**DEPTH, "integerValueSpec": 5}]), "depth: the form has no field for 5."),
        ('parameters: {"\\ud800": 5}', "neither JSON nor YAML"),
        (
            json.dumps(
                [
                    {
                        **KIND,
                        "conditionalParameterSpecs": [
                            {"parentCategoricalValues": {"values": 5}, "parameterSpec": DEPTH}
                        ],
                    }
                ]
            ),
            "a value that no parameter can have",
        ),
        (f"parameters: {{{', '.join(f'p{each}: {{min: 0}}' for each in range(101))}}}", "Give at most 100."),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(text, said):
    with pytest.raises(UnreadableSpace) as refused:
        pasted_rows(text)
    assert said in str(refused.value)
