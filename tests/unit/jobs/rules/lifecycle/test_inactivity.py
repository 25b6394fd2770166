"""Which replicas have stalled and which jobs are idle: only when it is known, and never without samples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.rules.lifecycle.decide import LOOK_AGAIN_RUNNING_S, decide
from jobs.rules.lifecycle.plan import NOTHING
from jobs.rules.lifecycle.states import FlagName, JobState, RunPhase
from jobs.rules.lifecycle.views import Flag
from tests.unit.jobs.rules.views import GRACE_S, NOW, after, applied, job, run_of

STALL_S, IDLE_S = 1800.0, 600.0


def view_of(*, active=0, gpu=0, sampled=1800, gpus=True, stall=STALL_S, idle=0.0, **facts):
    run = run_of(
        gpus=gpus,
        active_at=after(active),
        gpu_active_at=after(gpu),
        sampled_at=after(sampled),
        **facts,
    )
    return job(run, stall_after_s=stall, idle_after_s=idle)


def flags_at(view, seconds):
    plan = decide(view, after(seconds), GRACE_S)
    assert decide(applied(view, plan, after(seconds)), after(seconds), GRACE_S) == NOTHING
    assert not plan.stop and plan.state is None
    return {flag.name for flag in plan.flags or ()}


@pytest.mark.parametrize(
    ("view", "flags"),
    [
        (view_of(), {FlagName.STALLED}),
        (view_of(active=1), set()),
        (view_of(stall=0.0), set()),
        (view_of(sampled=1700), set()),  # it is not sampled any more
        (view_of(unreachable_since=after(1790)), {FlagName.UNREACHABLE}),
        (view_of(idle=IDLE_S), {FlagName.STALLED, FlagName.IDLE}),
        (view_of(active=1790, gpu=1200, idle=IDLE_S), {FlagName.IDLE}),
        (view_of(active=1790, gpu=1201, idle=IDLE_S), set()),
        (view_of(active=1790, gpus=False, idle=IDLE_S), set()),
        (view_of(idle=IDLE_S, unreachable_since=after(1790)), {FlagName.UNREACHABLE}),
        (view_of(idle=IDLE_S, sampled=0), set()),
    ],
)
def test_an_inactive_run_gets_its_flags_after_half_an_hour(view, flags):
    assert flags_at(view, 1800) == flags


def test_one_busy_gpu_makes_the_job_active():
    still = replace(view_of(gpu=0).runs[0], active_at=after(1799))
    busy = replace(run_of("workerpool1-0"), gpus=True, sampled_at=after(1800), gpu_active_at=after(1795))
    last = replace(run_of("workerpool1-1"), gpus=True, sampled_at=after(1800), gpu_active_at=after(0))
    view = job(still, busy, last, idle_after_s=IDLE_S)
    assert flags_at(view, 1800) == set()
    starting = replace(busy, phase=RunPhase.CLAIMED)
    assert flags_at(job(still, starting, last, idle_after_s=IDLE_S), 1800) == set()
    assert flags_at(job(still, replace(busy, gpus=False), last, idle_after_s=IDLE_S), 1800) == {FlagName.IDLE}


def test_a_job_is_due_when_it_may_be_stalled_and_activity_clears_the_flag():
    view = view_of(active=100, sampled=100)
    plan = decide(view, after(100), GRACE_S)
    assert plan.due_at == after(100 + LOOK_AGAIN_RUNNING_S)
    late = replace(view.runs[0], sampled_at=after(1700))
    plan = decide(replace(view, runs=(late,)), after(1700), GRACE_S)
    assert plan.due_at == after(100 + STALL_S)
    since = Flag(FlagName.STALLED, after(1900), "told")
    awake = replace(late, sampled_at=after(2000), active_at=after(2000))
    plan = decide(replace(view, runs=(awake,), flags=(since,)), after(2000), GRACE_S)
    assert plan.flags == () and plan.state is None


def test_a_stall_names_its_replicas_and_their_times_and_keeps_its_text():
    view = view_of(active=0, sampled=1800)
    first = decide(view, after(1800), GRACE_S)
    [flag] = first.flags
    assert "workerpool0-0 since 2026-11-21 12:00:00 UTC" in flag.text and flag.since == after(1800)
    again = applied(view, first, after(1800))
    again = replace(again, runs=(replace(again.runs[0], sampled_at=after(2500)),))
    assert decide(again, after(2500), GRACE_S).flags is None


def test_a_job_that_ends_gets_no_inactivity_flags():
    stopping = replace(view_of(), cancel_requested_at=NOW, cancel_requested_by="alice")
    plan = decide(stopping, after(1800), GRACE_S)
    assert FlagName.STALLED not in {flag.name for flag in plan.flags or ()}
    assert plan.state == JobState.CANCELLING
