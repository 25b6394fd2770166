"""The console lost the time: its machine was restarted, and its clock may have been set. No outcome follows from that.

In these tests the machine's clock was set two hours ahead, so that 100 s look like 7,300.
"""

from __future__ import annotations

from dataclasses import replace

from jobs.rules.lifecycle.decide import decide, timeout_left_s
from jobs.rules.lifecycle.plan import NOTHING
from jobs.rules.lifecycle.states import JobState, RunPhase
from tests.unit.jobs.rules.views import GRACE_S, NOW, after, applied, job, queued, run_of, spec

P = "workerpool0-0"


def settled(view, now=NOW):
    """The job after its plan. A second decision must change nothing."""
    plan = decide(view, now, GRACE_S)
    done = applied(view, plan, now)
    assert decide(done, now, GRACE_S) == NOTHING
    return plan, done


def in_doubt(*runs, of, **changes):
    """A job that was started at NOW; at 100 the console's machine was restarted, and its clock is two hours ahead."""
    return replace(job(*runs, of=of, started_at=NOW), clock_unsure_since=after(7300), **changes)


def test_a_clock_that_was_set_while_no_process_ran_ends_no_job_before_its_hosts_have_answered():
    view = in_doubt(run_of(P), of=spec(1, timeout_s=3600.0))
    plan, _ = settled(view, after(7301))
    assert plan.outcome is None and not plan.stop
    assert decide(replace(view, clock_unsure_since=None), after(7301), GRACE_S).outcome is not None


def test_the_hosts_monotonic_clock_tells_how_much_of_the_timeout_is_left():
    """It says that the run was started 100 s before the console's clock was lost, which says 7,300."""
    view = in_doubt(replace(run_of(P), measured_start=after(7200)), of=spec(1, timeout_s=3600.0))
    plan, view = settled(view, after(7310))
    assert plan.outcome is None
    assert settled(view, after(7200 + 3599))[1].outcome is None
    assert settled(view, after(7200 + 3600))[0].outcome.state == JobState.CANCELLED


def test_a_timeout_is_kept_although_no_host_answers_after_the_time_was_lost():
    view = in_doubt(run_of(P), of=spec(1, timeout_s=3600.0))
    assert settled(view, after(7300 + 3599))[1].outcome is None
    assert settled(view, after(7300 + 3600))[0].outcome.state == JobState.CANCELLED


def test_no_wait_is_over_early_because_the_time_was_lost():
    waits = replace(
        queued(of=spec(1, max_wait_duration_s=60.0)), queued_at=NOW, clock_unsure_since=after(7300)
    )
    assert not settled(waits, after(7359))[0].next_attempt
    assert decide(waits, after(7360), GRACE_S).next_attempt
    starts = job(run_of(P, RunPhase.CLAIMED, started_at=None), state=JobState.PENDING)
    starts = replace(starts, start_limit_s=40.0, clock_unsure_since=after(7300))
    assert settled(starts, after(7339))[1].outcome is None
    assert settled(starts, after(7340))[1].outcome.state == JobState.QUEUED


def test_a_run_that_is_made_after_the_time_was_lost_gets_no_shorter_timeout_for_it():
    of = spec(1, timeout_s=30.0)
    assert timeout_left_s(of, NOW, after(7310), after(7300)) == 25.0
    assert timeout_left_s(of, after(7305), after(7310), after(7300)) == 30.0
