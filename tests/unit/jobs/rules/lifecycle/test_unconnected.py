"""Jobs whose replicas never connected: told after five minutes, and at the end; never when anything is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.rules.lifecycle.decide import decide
from jobs.rules.lifecycle.plan import NOTHING
from jobs.rules.lifecycle.states import FlagName, JobState, RunPhase
from tests.unit.jobs.rules.views import GRACE_S, after, applied, job, run_of

NAMES = ("workerpool0-0", "workerpool1-0", "workerpool1-1")
AFTER_S = 300.0


def runs(connected=(False, False, False), **facts):
    busy = {"active_at": after(295), "sampled_at": after(300), "gpus": True, **facts}
    return [
        replace(run_of(name), connected=each, **busy) for name, each in zip(NAMES, connected, strict=True)
    ]


def view_of(*of, unconnected=AFTER_S):
    return job(*of, unconnected_after_s=unconnected)


def flag_of(view, seconds):
    plan = decide(view, after(seconds), GRACE_S)
    assert decide(applied(view, plan, after(seconds)), after(seconds), GRACE_S) == NOTHING
    return next((flag for flag in plan.flags or () if flag.name == FlagName.UNCONNECTED), None)


def test_replicas_that_never_connected_are_told_with_the_line_to_use():
    view = view_of(*runs())
    assert flag_of(view, 299) is None
    told = flag_of(view, 300)
    assert told.since == after(300)
    assert "The 3 replicas of workerpool0 and workerpool1 have never connected to each other" in told.text
    assert "python3 -m torch.distributed.run" in told.text and "nothing is wrong" in told.text


@pytest.mark.parametrize("connected", [(False, True, False), (None, False, False), (True, True, True)])
def test_one_connection_or_one_replica_that_was_not_looked_at_is_enough(connected):
    assert flag_of(view_of(*runs(connected)), 300) is None


@pytest.mark.parametrize(
    "facts",
    [
        {"phase": RunPhase.CLAIMED},
        {"unreachable_since": after(290)},
        {"active_at": after(0)},  # it does nothing, so it trains nothing
        {"created_at": after(100)},  # it was started again later
    ],
)
def test_it_is_not_told_while_a_replica_does_not_run_or_does_nothing(facts):
    changed = runs()
    changed[1] = replace(changed[1], **facts)
    assert flag_of(view_of(*changed), 300) is None


def test_it_can_be_switched_off_and_a_job_of_one_replica_is_not_asked():
    assert flag_of(view_of(*runs(), unconnected=0.0), 300) is None
    assert flag_of(view_of(runs()[0]), 300) is None


def test_the_job_is_due_when_it_may_be_told():
    assert decide(view_of(*runs()), after(20), GRACE_S).due_at == after(AFTER_S)


def test_a_connection_takes_the_flag_away():
    view = view_of(*runs())
    told = applied(view, decide(view, after(300), GRACE_S), after(300))
    late = replace(told, runs=tuple(replace(run, connected=True) for run in told.runs))
    assert decide(late, after(310), GRACE_S).flags == ()


@pytest.mark.parametrize(
    ("seconds", "connected", "told"), [(150, False, True), (149, False, False), (150, True, False)]
)
def test_a_job_that_succeeded_keeps_the_flag(seconds, connected, told):
    over = {"phase": RunPhase.CLOSED, "seconds": float(seconds), "closed_at": after(seconds), "why": "exit"}
    done = [replace(run, **over, exit_code=0) for run in runs((connected, False, False))]
    plan = decide(view_of(*done), after(seconds), GRACE_S)
    assert plan.state == JobState.SUCCEEDED
    assert [flag.name for flag in plan.flags or ()] == ([FlagName.UNCONNECTED] if told else [])
