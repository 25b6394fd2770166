"""Secret variables in a job's document: what is accepted, what is refused, and that no value stays in the document."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.spec.advice import WARNING, advice
from jobs.rules.spec.cluster_variables import cluster_environment
from jobs.rules.spec.parse import InvalidDocument, parse_custom_job, parse_spec, to_document
from jobs.rules.spec.secret_variables import MAX_VALUE_BYTES, SecretVariable
from tests.unit.jobs.rules.spec.test_parse import GOOD

CANARY = "canary-51e0c7a9"
ENV = "job_spec.worker_pool_specs[0].container_spec.env[0]"
INLINE = {"name": "HF_TOKEN", "value": CANARY, "secret": True}
STORED = {"name": "HF_TOKEN", "valueFrom": {"secret": "HF"}}


def with_env(*env, pool=0):
    document = copy.deepcopy(GOOD)
    document["jobSpec"]["workerPoolSpecs"][pool]["containerSpec"]["env"] = list(env)
    return document


def violations(*env):
    with pytest.raises(InvalidDocument) as refused:
        parse_custom_job(with_env(*env))
    assert CANARY not in str(refused.value)
    return {(each.field.removeprefix(ENV), each.description) for each in refused.value.violations}


def test_the_value_is_taken_out_at_once():
    job = parse_custom_job(with_env(INLINE, {"name": "A", "value": "1"}))
    [asked] = job.asked_secrets
    assert (asked.value, asked.pool, asked.path, asked.variable.name) == (CANARY, 0, ENV, "HF_TOKEN")
    container = job.job_spec.pools[0].task
    assert container.secrets == (SecretVariable("HF_TOKEN"),) and container.env == (("A", "1"),)
    assert CANARY not in json.dumps(to_document(job)) + repr(job) + repr(asked)


def test_the_canonical_document_has_the_variable_with_an_empty_value():
    """So Google's clients find the field that they expect, and a document that is sent back means the same."""
    own = {"name": "B", "value_from": {"secret": "HF", "of": "person"}}
    job = parse_custom_job(with_env({**STORED, "name": "C"}, INLINE, {"name": "A", "value": "1"}, own))
    document = to_document(job)
    assert document["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"] == [
        {"name": "A", "value": "1"},
        {"name": "C", "value": "", "valueFrom": {"secret": "HF"}},
        {"name": "HF_TOKEN", "value": "", "secret": True},
        {"name": "B", "value": "", "valueFrom": {"secret": "HF", "of": "person"}},
    ]
    again = parse_custom_job(document)
    assert again == job and [each.value for each in again.asked_secrets] == ["", "", ""]
    assert parse_spec(document["jobSpec"]) == job.job_spec


def test_the_description_of_the_cluster_has_no_value():
    job = parse_custom_job(with_env(INLINE, pool=2))
    names = [name for name, *_ in job.job_spec.replicas()]
    for name in names:
        variables = cluster_environment(
            job.job_spec,
            job_id="1",
            project="p",
            location="l",
            replica=name,
            addresses={each: f"10.0.0.1:{2000 + number}" for number, each in enumerate(names)},
            host_name="h",
            gpus=0,
        )
        assert CANARY not in repr(variables) and "HF_TOKEN" not in variables
        assert '"HF_TOKEN"' in variables["CLUSTER_SPEC"] and '"HF_TOKEN"' in variables["TF_CONFIG"]


@pytest.mark.parametrize(
    ("item", "field", "said"),
    [
        ({**INLINE, "value": 7}, ".value", "must be a string."),
        ({**INLINE, "value": "x" * (MAX_VALUE_BYTES + 1)}, ".value", f"has {MAX_VALUE_BYTES + 1} bytes"),
        ({**INLINE, "value": f"{CANARY}\0"}, ".value", "NUL"),
        ({**INLINE, "value": f"{CANARY}\ud800"}, ".value", "surrogate"),
        ({**INLINE, "secret": "yes"}, ".secret", "must be true or false"),
        ({**INLINE, "name": "1A"}, ".name", "not begin with a digit"),
        ({**INLINE, "name": "TRAINYARD_X"}, ".name", "runner's own"),
        ({**INLINE, "hidden": True}, ".hidden", "not a field"),
        ({**STORED, "value": CANARY}, ".value", "must be left out beside value_from"),
        ({**STORED, "secret": True}, ".secret", "is not needed beside value_from"),
        ({"name": "A", "valueFrom": {"secret": "a b"}}, ".value_from.secret", "names a stored secret"),
        ({"name": "A", "valueFrom": {"secret": 7}}, ".value_from.secret", "must be a string"),
        ({"name": "A", "valueFrom": {"of": "project"}}, ".value_from.secret", "names a stored secret"),
        ({"name": "A", "valueFrom": {"secret": "S", "of": "bob"}}, ".value_from.of", '"project" or "person"'),
        ({"name": "A", "valueFrom": {"secret": "S", "key": "k"}}, ".value_from.key", "not a field"),
        ({"name": "A", "valueFrom": "S"}, ".value_from", "must be an object"),
    ],
)
def test_what_is_wrong_is_named_and_no_value_is_repeated(item, field, said):
    found = violations(item)
    assert any(where == field and said in text for where, text in found), found


def test_a_name_is_given_once_whether_secret_or_not():
    for first, second in ((INLINE, STORED), (INLINE, {"name": "HF_TOKEN", "value": "1"}), (STORED, INLINE)):
        with pytest.raises(InvalidDocument, match="HF_TOKEN is given twice"):
            parse_custom_job(with_env(first, second))


def test_secret_false_is_a_plain_variable():
    job = parse_custom_job(with_env({"name": "A", "value": "1", "secret": False}))
    assert job.job_spec.pools[0].task.env == (("A", "1"),) and not job.asked_secrets


@given(st.text(min_size=1, max_size=50).filter(lambda text: "\0" not in text and text.isprintable()))
def test_no_value_ever_stays(value):
    marked = f"<<{value}>>"
    job = parse_custom_job(with_env({**INLINE, "value": marked}))
    assert job.asked_secrets[0].value == marked
    assert json.dumps(marked)[1:-1] not in json.dumps(to_document(job)) and marked not in repr(job)


@pytest.mark.parametrize(
    ("name", "value", "warned"),
    [
        ("HF_TOKEN", "hf_abcdefgh", True),
        ("WANDB_API_KEY", "0123456789abcdef", True),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI", True),
        ("db.password", "correct horse", True),
        ("TOKENIZERS_PARALLELISM", "disabled!", False),
        ("MAX_TOKEN", "20480000", False),
        ("SSL_KEY", "/etc/ssl/key.pem", False),
        ("SECRET_KEY", "", False),
        ("PASSWORD", "$HOME/x", False),
        ("MONKEY", "bananas-bananas", False),
    ],
)
def test_names_of_plain_variables_that_look_secret(name, value, warned):
    job = parse_custom_job(with_env({"name": name, "value": value}))
    found = [one for one in advice(job.job_spec) if "looks like a secret" in one.text]
    assert bool(found) is warned
    assert all(one.kind == WARNING and name in one.text and value not in one.text for one in found)


def test_secret_variables_need_no_advice_about_secrets():
    job = parse_custom_job(with_env(INLINE, {**STORED, "name": "API_KEY"}))
    assert not [one for one in advice(job.job_spec) if "secret" in one.text]
