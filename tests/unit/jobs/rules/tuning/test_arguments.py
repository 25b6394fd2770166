"""The parameters of a trial as arguments of its pools."""

from __future__ import annotations

import pytest

from jobs.rules.spec.custom_job import to_document
from jobs.rules.spec.parse import parse_spec
from jobs.rules.tuning.arguments import spec_of_trial, with_arguments
from jobs.rules.tuning.space import Kind, Parameter
from tests.unit.jobs.rules.spec.test_reduction import BY_RUNTIME, REDUCERS, job


@pytest.mark.parametrize("third", [REDUCERS, BY_RUNTIME])
def test_reducers_get_no_arguments_and_the_job_of_a_trial_can_be_submitted_again(third):
    """They have a program of their own: a document that gives them arguments is refused."""
    spec = with_arguments(
        spec_of_trial(job(third).job_spec, 3, ["loss"]),
        {"lr": 0.5},
        (Parameter("lr", Kind.DOUBLE, 0.1, 1.0),),
    )
    assert [pool.task.args for pool in spec.pools] == [("--lr=0.5",), ("--lr=0.5",), ()]
    assert parse_spec(to_document(spec)) == spec
