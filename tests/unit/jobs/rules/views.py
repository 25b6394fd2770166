"""The smallest jobs that tests of the rules need, and a pure world that applies plans to them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import settings

from jobs.rules.lifecycle import states
from jobs.rules.lifecycle.states import JobState, ReplicaState, RunPhase
from jobs.rules.lifecycle.views import JobView, ReplicaView, RunView
from jobs.rules.spec.custom_job import CustomJobSpec, Machine, Pool
from jobs.rules.spec.tasks import Container

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
GRACE_S = 10.0


def examples(count, **options):
    """The same examples each time: a red build must mean that the code changed."""
    return settings(max_examples=count, derandomize=True, database=None, **options)


def after(seconds):
    return NOW + timedelta(seconds=seconds)


def pool(replicas=1, **machine):
    return Pool(Machine(**machine), replicas, Container("host", ("train",)))


def spec(*counts, **options):
    """A job of pools with so many replicas; 0 is a skipped pool."""
    pools = tuple(pool(count) if count else None for count in counts or (1,))
    return CustomJobSpec(pools=pools, **options)


def run_of(replica="workerpool0-0", phase=RunPhase.RUNNING, *, attempt=1, number=0, **facts):
    facts = {"started_at": NOW if phase.rank >= RunPhase.RUNNING.rank else None, **facts}
    name = f"7-{replica}-a{attempt}-r{number}"
    return RunView(name, replica, attempt, number, f"host-of-{replica}", phase, NOW, **facts)


def ended(replica="workerpool0-0", *, phase=RunPhase.CLOSED, **facts):
    if facts.get("why") in ("tombstone", "refused"):
        facts["started_at"] = None
    facts = {"why": "exit", "ended_at": NOW, "closed_at": NOW if phase == RunPhase.CLOSED else None, **facts}
    return run_of(replica, phase, **facts)


def job(*runs, state=JobState.RUNNING, of=None, replicas=None, **fields):
    """A placed job; its replicas are RUNNING unless said otherwise."""
    of = of or spec(*([1, 2] if any("workerpool1" in run.replica for run in runs) else [1]))
    replicas_by_name = {
        name: ReplicaView(name, pool, index, ReplicaState.RUNNING) for name, pool, index, _ in of.replicas()
    }
    for name, changes in (replicas or {}).items():
        replicas_by_name[name] = replace(replicas_by_name[name], **changes)
    defaults = {
        "id": "7",
        "state": state,
        "version": 1,
        "spec": of,
        "attempt": 1,
        "job_retries": 0,
        "internal_tries": 0,
        "created_at": NOW,
        "started_at": NOW if state != JobState.PENDING else None,
        "cancel_requested_at": None,
        "cancel_requested_by": "",
        "outcome": None,
        "location": "lab-a",
    }
    return JobView(**{**defaults, **fields}, replicas=tuple(replicas_by_name.values()), runs=tuple(runs))


def queued(of=None, **fields):
    view = job(state=JobState.QUEUED, of=of or spec(1), started_at=None, **fields)
    waiting = tuple(replace(replica, state=ReplicaState.WAITING) for replica in view.replicas)
    return replace(view, replicas=waiting)


def applied(view, plan, now=NOW):
    """What advance.py does to rows, done to a view. Illegal moves raise."""
    before = view.state
    for event in (event for event in plan.events if event.subject == "job"):
        assert event.from_state == before, "history has no holes"
        states.check(JobState(before), JobState(event.to_state))
        before = event.to_state
    assert before == (plan.state or view.state), "history tells where the job is"
    return replace(
        view,
        version=view.version + (0 if plan.empty else 1),
        state=plan.state or view.state,
        outcome=None if plan.next_attempt else plan.outcome or view.outcome,
        attempt=view.attempt + plan.next_attempt,
        preempted="" if plan.next_attempt else view.preempted,
        queued_at=(plan.rests_until or now) if plan.next_attempt else view.queued_at,
        rests_until=plan.rests_until if plan.next_attempt else plan.rests_until or view.rests_until,
        job_retries=view.job_retries if plan.job_retries is None else plan.job_retries,
        internal_tries=view.internal_tries if plan.internal_tries is None else plan.internal_tries,
        started_at=view.started_at or plan.started_at,
        flags=view.flags if plan.flags is None else plan.flags,
        due_at=plan.due_at if plan.reschedule else view.due_at,
        replicas=tuple(_applied_to_replica(replica, plan) for replica in view.replicas),
        runs=_applied_to_runs(view, plan, now),
    )


def _applied_to_replica(replica, plan):
    state = plan.replica_states.get(replica.name, replica.state)
    states.check(replica.state, state) if state != replica.state else None
    counted = [each for each in (*plan.restart, *plan.take) if each.counts and each.replica == replica.name]
    restarts = replica.restarts + len(counted)
    return replace(replica, state=state, restarts=0 if plan.next_attempt else restarts)


def _applied_to_runs(view, plan, now):
    stops = {stop.run: stop.grace_s for stop in plan.stop}
    waits = {wait.after: wait.at for wait in plan.wait}
    view = replace(
        view, runs=tuple(replace(run, restart_at=waits.get(run.id, run.restart_at)) for run in view.runs)
    )
    runs = [
        replace(run, stop_wanted_at=run.stop_wanted_at or now, stop_grace_s=stops[run.id])
        if run.id in stops
        else run
        for run in view.runs
    ]
    for take in plan.take:
        held, old = (next(run for run in runs if run.id == name) for name in (take.run, take.after))
        assert held.held and old.phase == RunPhase.CLOSED, (
            "a held run starts when the one it follows is closed"
        )
        runs[runs.index(held)] = replace(held, held=False)
    for restart in plan.restart:
        old = next(run for run in runs if run.id == restart.after)
        assert old.phase == RunPhase.CLOSED, "a claim moves only from a run that is proved closed"
        assert old.restart_at is None or old.restart_at <= now or not view.retry_wait_s, (
            "it waited as long as it says"
        )
        runs.append(run_of(old.replica, RunPhase.CREATED, attempt=old.attempt, number=old.number + 1))
    if plan.next_attempt:
        assert all(run.phase == RunPhase.CLOSED for run in runs)
        return ()
    return tuple(runs)


def placed(view):
    """What scheduler.py does: the first runs of an attempt, all at once."""
    assert view.state == JobState.QUEUED and view.outcome is None
    return replace(
        view,
        state=JobState.PENDING,
        replicas=tuple(replace(replica, state=ReplicaState.STARTING) for replica in view.replicas),
        runs=tuple(run_of(replica.name, RunPhase.CREATED, attempt=view.attempt) for replica in view.replicas),
    )


def hold_place(view, replica, host="gpu-02", why="gpu-01 is being drained by alice"):
    """What moves.py does for a replica that must leave: a held run on another host."""
    number = sum(run.replica == replica and run.attempt == view.attempt for run in view.runs)
    held = run_of(replica, RunPhase.CREATED, attempt=view.attempt, number=number, held=True, held_why=why)
    return replace(view, runs=(*view.runs, replace(held, host=host)))
