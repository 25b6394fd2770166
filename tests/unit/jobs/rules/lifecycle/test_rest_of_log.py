"""A job whose host still has much of its log is over when the log is here, or after a while."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.rules.lifecycle.decide import LOG_LOOK_S, decide
from jobs.rules.lifecycle.plan import NOTHING
from jobs.rules.lifecycle.states import JobState
from jobs.rules.lifecycle.verdict import LOG_REST_BYTES, LOG_WAIT_S
from tests.unit.jobs.rules.views import GRACE_S, NOW, after, applied, ended, job

MUCH = 50_000_000


def settled(view, now=NOW):
    plan = decide(view, now, GRACE_S)
    done = applied(view, plan, now)
    assert decide(done, now, GRACE_S) == NOTHING
    return plan, done


@pytest.mark.parametrize(
    ("end", "state"), [({"exit_code": 0}, JobState.SUCCEEDED), ({"exit_code": 3}, JobState.FAILED)]
)
def test_the_end_is_told_when_the_log_is_here(end, state):
    view = job(ended(**end, log_missing=MUCH))
    plan, view = settled(view)
    assert (view.state, view.outcome.state) == (JobState.RUNNING, state)
    assert plan.due_at == after(LOG_LOOK_S)
    assert [flag.text for flag in view.flags] == [
        f"{state.capitalize()}; the rest of its log is being fetched."
    ]
    here = replace(view, runs=(replace(view.runs[0], log_missing=0),))
    assert settled(here, after(2))[1].state == state


def test_nothing_waits_for_ever():
    view = settled(job(ended(exit_code=0, log_missing=MUCH)))[1]
    assert settled(view, after(LOG_WAIT_S))[1].state == JobState.SUCCEEDED
    for wrong in (after(3600), after(-3600)):
        odd = replace(view, runs=(replace(view.runs[0], closed_at=wrong),))
        assert settled(odd)[1].state == JobState.SUCCEEDED, "the host's clock is wrong"


@pytest.mark.parametrize(
    "facts", [{"unreachable_since": NOW}, {"gone": True}, {"log_missing": LOG_REST_BYTES}]
)
def test_a_job_does_not_wait_for_a_host_that_does_not_answer_nor_for_a_small_rest(facts):
    view = job(ended(**{"exit_code": 0, "log_missing": MUCH, **facts}))
    assert decide(view, NOW, GRACE_S).state == JobState.SUCCEEDED


def test_a_cancelled_job_shows_that_it_is_being_cancelled_meanwhile():
    run = ended(why="stop", stop_wanted_at=NOW, log_missing=MUCH)
    view = job(run, cancel_requested_at=NOW, cancel_requested_by="alice")
    view = settled(view)[1]
    assert view.state == JobState.CANCELLING
    assert settled(view, after(LOG_WAIT_S))[1].state == JobState.CANCELLED


def test_another_attempt_does_not_wait_for_the_log_of_the_one_before():
    assert decide(job(ended(exit_code=134, log_missing=MUCH)), NOW, GRACE_S).next_attempt
