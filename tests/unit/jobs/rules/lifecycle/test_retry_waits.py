"""The first restart and the first retry are at once; each further one waits longer, and the time is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.rules.lifecycle.decide import decide
from jobs.rules.lifecycle.plan import NOTHING
from jobs.rules.lifecycle.retry import MAX_RESTARTS, MAX_RETRIES
from jobs.rules.lifecycle.retry_waits import LONGEST_UNITS, WELL_S, restart_wait_s, retry_wait_s
from jobs.rules.lifecycle.states import JobState, ReplicaState
from tests.unit.jobs.rules.views import GRACE_S, NOW, after, applied, ended, job, placed, queued, run_of, spec

P, W0 = "workerpool0-0", "workerpool1-0"
UNIT_S = 5.0


def settled(view, now=NOW):
    """The job after its plan. A second decision must change nothing."""
    plan = decide(view, now, GRACE_S)
    done = applied(view, plan, now)
    assert decide(done, now, GRACE_S) == NOTHING
    return plan, done


def lost_again(view, now):
    """The newest run of the primary is killed at once."""
    number = max(run.number for run in view.runs)
    runs = tuple(
        ended(P, attempt=run.attempt, number=number, exit_signal=9, started_at=now, ended_at=now)
        if run.number == number
        else run
        for run in view.runs
    )
    return replace(view, runs=runs)


def lives(view, now):
    """From each loss on: how long the next start waits, until the job is over."""
    waits, starts = [], 1
    for _ in range(30):
        view = settled(lost_again(view, now), now)[1]
        if view.state == JobState.QUEUED:
            waits.append((view.rests_until - now).total_seconds() if view.rests_until else 0.0)
            now = view.rests_until or now
            view = placed(replace(view, rests_until=None))
            view = settled(replace(view, runs=(run_of(P, attempt=view.attempt),)), now)[1]
            starts += 1
            continue
        if view.state == JobState.FAILED:
            return waits, starts, now
        closed = view.runs[-1]
        if closed.restart_at is not None:
            waits.append((closed.restart_at - now).total_seconds())
            assert view.due_at == closed.restart_at, "the job is looked at when the wait is over"
            almost = closed.restart_at - (closed.restart_at - now) / 2
            assert decide(view, almost, GRACE_S) == NOTHING, "it waits to the end"
            now = closed.restart_at
            view = settled(view, now)[1]
        else:
            waits.append(0.0)
        starts += 1
        newest = view.runs[-1]
        assert view.runs[-1].number <= MAX_RESTARTS
        view = replace(view, runs=(*view.runs[:-1], run_of(P, attempt=newest.attempt, number=newest.number)))
        view = settled(view, now)[1]
    raise AssertionError(f"after {starts} starts it goes on")


def test_a_program_that_always_fails_uses_up_its_24_starts_in_minutes_and_not_in_seconds():
    waits, starts, over = lives(job(run_of(P), retry_wait_s=UNIT_S), NOW)
    one_attempt = [0.0, 5.0, 10.0, 20.0, 40.0]
    assert waits == [*one_attempt, 0.0, *one_attempt, 60.0, *one_attempt, 120.0, *one_attempt]
    assert starts == 24 and over == after(4 * 75 + 180)


def test_without_a_unit_nothing_waits():
    waits, starts, over = lives(job(run_of(P)), NOW)
    assert set(waits) == {0.0} and (starts, over) == (24, NOW)


def test_history_and_flag_say_until_when_a_restart_waits():
    view = job(
        ended(P, exit_signal=9), run_of(P, number=1), replicas={P: {"restarts": 1}}, retry_wait_s=UNIT_S
    )
    plan, view = settled(lost_again(view, NOW))
    why = f"{P} was killed by SIGKILL on host-of-{P}; restart 2 of 5 waits until 2026-11-21 12:00:05 UTC."
    assert [event.cause for event in plan.events] == [why]
    assert [flag.text for flag in view.flags] == [
        f"Being restarted: {P} (waits until 2026-11-21 12:00:05 UTC)."
    ]
    assert view.replicas[0].state == ReplicaState.STARTING and plan.restart == ()
    plan, view = settled(view, after(5))
    assert (
        plan.restart[0].cause.endswith("restart 2 of 5.") and view.flags[0].text == f"Being restarted: {P}."
    )


def test_the_reason_and_the_history_say_until_when_the_whole_job_waits():
    view = job(ended(P, exit_code=134), retry_wait_s=UNIT_S, job_retries=1)
    plan, view = settled(view)
    told = "retry 2 of 3. It waits until 2026-11-21 12:01:00 UTC."
    assert plan.next_attempt and plan.reason.endswith(told) and plan.events[-1].cause.endswith(told)
    assert view.rests_until == view.queued_at == after(60), "this time does not count as waiting for capacity"


def test_an_attempt_that_took_long_to_stop_has_waited_meanwhile():
    of = spec(1, 1)
    view = job(ended(P, exit_code=134), run_of(W0), of=of, retry_wait_s=UNIT_S, job_retries=1)
    view = settled(view)[1]
    assert view.rests_until == after(60) and view.outcome.state == JobState.QUEUED
    stopped = ended(W0, why="stop", stop_wanted_at=NOW)
    plan, view = settled(replace(view, runs=(view.runs[0], stopped)), after(70))
    assert plan.next_attempt and (plan.rests_until, plan.reason) == (None, "")


@pytest.mark.parametrize("together", [False, True])
def test_a_job_whose_replicas_restart_together_waits_as_a_whole(together):
    of = spec(1, 1, restart_job_on_worker_restart=together)
    runs = [ended(P, why="stop", stop_wanted_at=NOW), ended(W0, exit_signal=9)]
    later = [replace(ended(P, number=1, why="stop", stop_wanted_at=NOW)), ended(W0, number=1, exit_signal=9)]
    restarted = {name: {"restarts": 1, "state": ReplicaState.STARTING} for name in (P, W0)}
    view = job(*runs, *later, of=of, replicas=restarted, retry_wait_s=UNIT_S)
    plan, view = settled(view)
    assert [wait.after for wait in plan.wait] == [later[1].id]
    assert [again.replica for again in plan.restart] == ([] if together else [P]), (
        "a stopped one is not to blame"
    )
    plan, view = settled(view, after(5))
    assert [again.replica for again in plan.restart] == ([P, W0] if together else [W0])


def test_after_a_run_that_was_well_the_row_begins_anew():
    def wait(*seconds, restarts):
        runs = [replace(ended(P, number=n), seconds=each) for n, each in enumerate(seconds)]
        return restart_wait_s(replace(job(run_of()).replicas[0], restarts=restarts), runs, UNIT_S)

    assert wait(1.0, restarts=0) == 0
    assert wait(1.0, 1.0, restarts=1) == 5
    assert wait(1.0, 1.0, 1.0, restarts=2) == 10
    assert wait(1.0, 1.0, WELL_S, restarts=2) == 0
    assert wait(1.0, WELL_S, 1.0, restarts=2) == 0
    assert wait(WELL_S, 1.0, 1.0, restarts=2) == 5
    assert wait(1.0, 1.0, restarts=0) == 0, "the first was moved, which is no restart"


def test_where_the_host_did_not_measure_its_times_count():
    hours = replace(ended(P, number=1), started_at=NOW, ended_at=after(7200), seconds=None)
    replica = replace(job(run_of()).replicas[0], restarts=1)
    assert restart_wait_s(replica, [ended(P), hours], UNIT_S) == 0
    assert restart_wait_s(replica, [ended(P), replace(hours, ended_at=None)], UNIT_S) == UNIT_S


def test_a_clock_that_is_set_back_makes_nothing_wait_for_hours():
    view = job(
        ended(P, exit_signal=9), run_of(P, number=1), replicas={P: {"restarts": 1}}, retry_wait_s=UNIT_S
    )
    view = settled(lost_again(view, NOW))[1]
    assert decide(view, after(-UNIT_S * LONGEST_UNITS), GRACE_S).restart != ()


def test_a_cancel_and_a_timeout_do_not_wait():
    view = job(
        ended(P, exit_signal=9), run_of(P, number=1), replicas={P: {"restarts": 1}}, retry_wait_s=UNIT_S
    )
    view = settled(lost_again(view, NOW))[1]
    cancelled = replace(view, cancel_requested_at=NOW, cancel_requested_by="alice")
    assert decide(cancelled, NOW, GRACE_S).state == JobState.CANCELLED
    short = replace(view, spec=replace(view.spec, timeout_s=3.0), due_at=None)
    assert decide(short, NOW, GRACE_S).due_at == after(3)
    assert decide(short, after(3), GRACE_S).state == JobState.CANCELLED


def test_each_wait_is_longer_than_the_one_before_and_each_number_has_one():
    retries = [retry_wait_s(retry, 1.0) for retry in range(1, MAX_RETRIES + 1)]
    assert retries == sorted(set(retries)) and retries[0] == 0
    replica = job(run_of()).replicas[0]
    runs = [ended(P, number=number) for number in range(MAX_RESTARTS + 1)]
    waits = [restart_wait_s(replace(replica, restarts=n), runs[: n + 1], 1.0) for n in range(MAX_RESTARTS)]
    assert waits == sorted(set(waits)) and waits[0] == 0


def test_a_job_that_waited_for_capacity_does_not_wait_again():
    view = queued(spec(1, max_wait_duration_s=50.0), job_retries=1, retry_wait_s=UNIT_S, queued_at=NOW)
    plan, view = settled(view, after(50))
    assert plan.next_attempt and plan.rests_until is None
