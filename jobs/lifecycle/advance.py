"""Load jobs, decide about each, apply the plans: from what is known about a job follows what is written.

One transaction handles any number of jobs. It locks their rows in the order of their ids, then reads the facts, decides
about each job by itself, and writes all differences together. Any process may run it, at any time, twice.

A job whose decision raises is tried again later and does not delay other jobs: its `due_at` is set into the future
before anything else is tried with it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Coalesce

from agents.hosts import host_history, recovery
from agents.infra.clock import Clock
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.failpoints import failpoint
from agents.infra.sql import Parameter, UpdateStatement, UpdateStatements
from agents.infra.texts import said
from jobs.lifecycle import claims, job_history, snapshot
from jobs.lifecycle.snapshot import Rows
from jobs.models import Job, Replica, Run, Transition
from jobs.rules.lifecycle.decide import decide
from jobs.rules.lifecycle.plan import Plan, RestartWait, Stop, UnprovedRun
from jobs.rules.lifecycle.states import TERMINAL, JobState, ReplicaState, RunPhase, check
from jobs.rules.list_text import list_text
from jobs.rules.spec.output_addresses import output_addresses
from jobs.wake import announce, hints

log = logging.getLogger(__name__)

# A job whose decision raised is tried again after this.
RETRY_AFTER_ERROR = timedelta(minutes=1)
# If the time to look again has passed already when a decision is made, the job is looked at after this.
SOON = timedelta(seconds=1)
# A job that begins to wait is first looked at after this: its deadlines are known then.
QUEUED_LOOK = timedelta(seconds=5)
FIRST_TRIAL = "1"
# The kind of the line in a host's history: a job ended although this unreachable host had not proved its run closed.
JOB_ENDED = "job_ended"

_left = UpdateStatement(lambda: Run.objects.filter(pk=Parameter("run")), "silent_since")
_stop = UpdateStatement(
    lambda: Run.objects.filter(pk=Parameter("run")),
    "stop_grace_s",
    "stop_reason",
    stop_wanted_at=Coalesce(F("stop_wanted_at"), Parameter("now")),
)
_wait = UpdateStatement(lambda: Run.objects.filter(pk=Parameter("run")), "restart_at")
_replicas = UpdateStatement(lambda: Replica.objects.filter(pk__among=Parameter("ids")), "state")
_job = UpdateStatements(lambda: Job.every.filter(pk=Parameter("job"), version=Parameter("before")))


@dataclass(slots=True)
class Changes:
    """Everything that a batch of plans writes, gathered so that each table is written once."""

    now: datetime
    replicas: dict[ReplicaState, list[int]] = field(default_factory=lambda: defaultdict(list))
    restarted: list[int] = field(default_factory=list)
    new_attempt: list[int] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    waits: list[RestartWait] = field(default_factory=list)
    unproved_runs: list[UnprovedRun] = field(default_factory=list)
    unproved_by_host: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    released: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    taken: list[tuple[Run, Mapping[str, str]]] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)
    hosts: set[int] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    trials: set[int] = field(default_factory=set)
    restarts_at: dict[int, datetime] = field(default_factory=dict)
    retries_at: dict[int, datetime] = field(default_factory=dict)
    freed: bool = False
    has_outputs: bool = False


@dataclass(frozen=True, slots=True)
class Advanced:
    """What the caller has to hint: the hosts on which something else is wanted now, and whether capacity was freed.

    `restarts_at`: jobs of which a restart waits from now on, and until when; `retries_at`: the same of jobs of which
    the next attempt waits. The sweep finds both then, a little later.
    """

    hosts: frozenset[int] = frozenset()
    freed: bool = False
    restarts_at: Mapping[int, datetime] = field(default_factory=dict)
    retries_at: Mapping[int, datetime] = field(default_factory=dict)


def advance(ids: Collection[int], clock: Clock) -> None:
    """Decide about these jobs, and send the hints that follow."""
    advanced = advance_quietly(ids, clock)
    hints.hosts(advanced.hosts)
    if advanced.freed:
        hints.schedule()


def advance_quietly(ids: Collection[int], clock: Clock) -> Advanced:
    """The same without hints, for a caller that is a dispatcher or the scheduler itself."""
    if recovery.in_recovery_mode():
        return Advanced()  # the jobs stay due
    try:
        with transaction.atomic():
            done = _advance(snapshot.lock(ids), clock)
            failpoint("advance.before")
        failpoint("advance.after")
        return done
    except Exception as problem:
        if len(ids) == 1:
            if isinstance(problem, DATABASE_UNAVAILABLE):
                raise  # the job is not to blame, and stays due
            log.exception("Job %s could not be advanced; it is tried again in %s.", *ids, RETRY_AFTER_ERROR)
            Job.every.filter(pk__in=ids).update(due_at=clock.now() + RETRY_AFTER_ERROR)
            return Advanced()
    # One job failed the transaction of all: try each alone.
    each = [advance_quietly([pk], clock) for pk in sorted(ids)]
    hosts = frozenset().union(*(one.hosts for one in each))
    restarts_at = {job: at for one in each for job, at in one.restarts_at.items()}
    retries_at = {job: at for one in each for job, at in one.retries_at.items()}
    return Advanced(hosts, any(one.freed for one in each), restarts_at, retries_at)


def _not_before(batch: list[Rows], now: datetime) -> datetime:
    """A decision is not dated before a change that was written while the lock was waited for."""
    return max([now, *[rows.job.updated_at for rows in batch]])


def _advance(batch: list[Rows], clock: Clock) -> Advanced:
    now, decided = _decide_all(batch, clock)
    changes = Changes(now)
    for rows, plan in decided:
        if plan is None:
            Job.every.filter(pk=rows.job.pk).update(due_at=now + RETRY_AFTER_ERROR)
            _release(rows, None, changes)
        else:
            _apply(rows, plan, changes)
    _write(changes)
    announce.hints(changes.topics)
    hints.trials(changes.trials)
    if changes.has_outputs:
        hints.outputs()
    return Advanced(frozenset(changes.hosts), changes.freed, changes.restarts_at, changes.retries_at)


def _decide_all(batch: list[Rows], clock: Clock) -> tuple[datetime, list[tuple[Rows, Plan | None]]]:
    """A plan for each job, and the time of these decisions.

    This process may have been suspended after it read that a host is unreachable. No job may end without the proof of
    a host that answers again: if a plan leaves runs on unreachable hosts, the status of these hosts is locked, and
    everything is read and decided again.
    """
    held: set[int] = set()
    while True:
        now = _not_before(batch, clock.now())
        decided = [(rows, _plan(rows, now)) for rows in batch]
        unreachable = {run.host_id for rows, plan in decided for run in _unproved_runs(rows, plan)} - held
        if not unreachable:
            return now, decided
        host_history.lock_statuses(unreachable)
        held |= unreachable
        batch = snapshot.read([rows.job for rows in batch])


def _unproved_runs(rows: Rows, plan: Plan | None) -> list[Run]:
    left = {each.run for each in plan.left} if plan else set()
    return [run for run in rows.runs if run.pk in left] if left else []


def _unproved(rows: Rows, plan: Plan) -> dict[int, list[str]]:
    """By host, the replicas whose end the host has not reported."""
    names = {replica.pk: replica.name for replica in rows.replicas}
    found: dict[int, list[str]] = defaultdict(list)
    for run in _unproved_runs(rows, plan):
        found[run.host_id].append(names[run.replica_id])
    return found


def _plan(rows: Rows, now: datetime) -> Plan | None:
    """None if the decision raised: the job is tried again later."""
    try:
        view = snapshot.view_of(rows)
        plan = decide(view, now, settings.TRAINYARD.grace_s, settings.TRAINYARD.preempt_grace_s)
        check_moves(rows, plan)
    except Exception:
        log.exception("No decision about job %s; it is tried again in %s.", rows.job.pk, RETRY_AFTER_ERROR)
        return None
    return plan


def check_moves(rows: Rows, plan: Plan) -> None:
    """Raise if the plan contains a step that the tables of states do not allow."""
    before: JobState = JobState(rows.job.state)
    for event in plan.events:
        if event.subject == "job":
            check(before, JobState(event.to_state))
            before = JobState(event.to_state)
    for replica in rows.replicas:
        after = plan.replica_states.get(replica.name)
        if after is not None:
            check(ReplicaState(replica.state), after)


def _apply(rows: Rows, plan: Plan, changes: Changes) -> None:
    job = rows.job
    _write_job(job, plan, changes.now)
    runs = {run.pk: run for run in rows.runs}
    replicas = {replica.name: replica for replica in rows.replicas}
    for name, state in plan.replica_states.items():
        changes.replicas[state].append(replicas[name].pk)
    if plan.next_attempt:
        changes.new_attempt += [replica.pk for replica in rows.replicas]
        changes.freed = True
    addresses = _new_addresses(rows, plan) if plan.take else None
    for restart in plan.restart:
        old = runs[restart.after]
        old.replica = replicas[restart.replica]
        number = _next_number(rows, old)
        changes.runs.append(
            claims.restart_run(job, snapshot.spec_of(job), old, number, changes.now, addresses)
        )
        changes.released.append(old.pk)
        changes.restarted += [old.replica_id] if restart.counts else []
        changes.hosts.add(old.host_id)
    for take in plan.take:
        run = runs[take.run]
        run.replica, run.job = replicas[take.replica], job
        changes.taken.append((run, addresses or {}))
        changes.restarted += [run.replica_id] if take.counts else []
        changes.hosts.add(run.host_id)
    changes.stops += plan.stop
    changes.waits += plan.wait
    if plan.wait:
        changes.restarts_at[job.pk] = min(each.at for each in plan.wait)
    if plan.rests_until is not None:
        changes.retries_at[job.pk] = plan.rests_until
    changes.hosts |= {runs[stop.run].host_id for stop in plan.stop}
    changes.unproved_runs += plan.left
    for host, names in _unproved(rows, plan).items():
        changes.unproved_by_host[host].append(f"job {job.pk} ({list_text(names)})")
    changes.transitions += job_history.of_plan(rows, plan, changes.now)
    _release(rows, plan, changes)
    if changes_anything(plan):
        changes.topics |= {f"job:{job.pk}", f"jobs:{job.project.name}"}
    if job.trial and plan.state is not None and _concerns_study(rows, plan.state):
        changes.trials.add(job.pk)


def _concerns_study(rows: Rows, state: JobState) -> bool:
    """Whether the study of this trial looks at once. That a trial has started can wait for the sweep, but for the first
    of the study; and its end for the hint that all of its reports are here."""
    if state not in TERMINAL:
        return rows.job.trial == FIRST_TRIAL
    return not any(_is_reporting(run) for run in rows.runs)


def _is_reporting(run: Run) -> bool:
    """Whether more of what its program reported is on its way (host_sync/intake.py), which then tells the study. Where
    that never comes, the sweep finds that the trial has ended."""
    if run.forgotten_at is not None:
        return False
    if run.declared_lost_at is not None and run.proved_at is None:
        return False  # its host is gone; tuning/measured.py waits for nothing of it either
    return not run.metrics_proof or (run.metrics_read is not None and run.log_complete_at is None)


def _next_number(rows: Rows, old: Run) -> int:
    """The number of the next run. A place that was held and given back has used up its number."""
    return 1 + max(run.number for run in _of_replica(rows, old))


def _of_replica(rows: Rows, run: Run) -> list[Run]:
    """All runs of the replica and attempt that `run` belongs to, held runs included."""
    return [each for each in rows.runs if (each.replica_id, each.attempt) == (run.replica_id, run.attempt)]


def _new_addresses(rows: Rows, plan: Plan) -> dict[str, str]:
    """The address of every replica of the job after this plan."""
    taken = {take.run for take in plan.take}
    names = {replica.pk: replica.name for replica in rows.replicas}
    current = [
        run for run in rows.runs if run.attempt == rows.job.attempt and (not run.held or run.pk in taken)
    ]
    return {names[run.replica_id]: claims.address(run.host, run.port) for run in current}


def changes_anything(plan: Plan) -> bool:
    """Does the plan contain more than another time to look at the job?"""
    return plan != Plan(due_at=plan.due_at, reschedule=plan.reschedule)


def _write_job(job: Job, plan: Plan, now: datetime) -> None:
    columns: dict[str, Any] = {}
    for name in ("job_retries", "internal_tries", "started_at", "ended_at"):
        if getattr(plan, name) is not None:
            columns[name] = getattr(plan, name)
    if plan.state is not None:
        columns["state"] = plan.state
    if plan.outcome is not None:
        outcome = plan.outcome
        columns |= {"outcome": outcome.state, "error_message": outcome.message}
        columns["error_code"] = outcome.code or None
    if plan.flags is not None:
        columns["flags"] = [
            {"flag": flag.name, "since": flag.since.isoformat(), "text": flag.text} for flag in plan.flags
        ]
    if plan.next_attempt:
        begins = plan.rests_until or now
        columns |= {"attempt": job.attempt + 1, "queued_at": begins, "reason": plan.reason}
        columns["rests_until"] = plan.rests_until
        columns |= {"quota_since": None, "quota_s": 0.0}
        columns |= {"outcome": "", "error_code": None, "error_message": "", "preempted_by": ""}
    if plan.rests_until is not None:
        columns["rests_until"] = plan.rests_until
    if plan.take:
        columns["reason"] = ""
    if changes_anything(plan):
        columns |= {"version": job.version + 1, "updated_at": now}
    due_at = plan.due_at if plan.reschedule else job.due_at
    if plan.next_attempt:
        due_at = min(now + QUEUED_LOOK, due_at or now + QUEUED_LOOK)  # most jobs are placed before that
    if due_at is not None and due_at <= now:
        due_at = now + SOON
    if (plan.state or job.state) in TERMINAL:
        due_at = None
    if due_at != job.due_at:
        columns["due_at"] = due_at
    if columns and not _job(columns, job=job.pk, before=job.version):
        raise RuntimeError(f"Job {job.pk} was changed under its lock.")


def _release(rows: Rows, plan: Plan | None, changes: Changes) -> None:
    """Release the claims of closed runs, except those that the next run of the replica takes over."""
    moved = {restart.after for restart in plan.restart} if plan else set()
    closed = [run for run in rows.runs if run.phase == RunPhase.CLOSED and run.released_at is None]
    over = [run for run in closed if run.pk not in moved]
    if released := [run.pk for run in over if plan is None or not _comes_back(rows, plan, run)]:
        changes.released += released
        changes.freed = True
        # Of a job that cannot be decided about, the sweep finds them.
        changes.has_outputs |= plan is not None and bool(output_addresses(snapshot.spec_of(rows.job)).named)


def _comes_back(rows: Rows, plan: Plan, run: Run) -> bool:
    """Is the replica to run again on this host, once all replicas can be restarted together?"""
    if plan.next_attempt or plan.outcome or rows.job.outcome or run.attempt != rows.job.attempt:
        return False
    if (plan.state or rows.job.state) in TERMINAL:
        return False
    if run.declared_lost_at is not None:
        return False
    latest = max((each.number for each in _of_replica(rows, run) if not each.held), default=run.number)
    replica = next(each for each in rows.replicas if each.pk == run.replica_id)
    state = plan.replica_states.get(replica.name, ReplicaState(replica.state))
    return run.number == latest and state == ReplicaState.STARTING


def _write(changes: Changes) -> None:
    now = changes.now
    if changes.stops or changes.waits or changes.released or changes.taken or changes.unproved_runs:
        # In the order of ids, as everywhere.
        ids = [stop.run for stop in changes.stops] + changes.released + [run.pk for run, _ in changes.taken]
        ids += [wait.after for wait in changes.waits]
        snapshot.lock_runs(ids=ids + [left.run for left in changes.unproved_runs])
    for wait in changes.waits:
        _wait(run=wait.after, restart_at=wait.at)
    for stop in changes.stops:
        _stop(run=stop.run, now=now, stop_grace_s=stop.grace_s, stop_reason=stop.reason)
    _record_unproved_runs(changes)
    if changes.released:
        failpoint("release.before")
        claims.release(changes.released, now)
        failpoint("release.after")
    if changes.runs:
        claims.save(changes.runs, now)
        claims.ask_for_preparations(changes.runs, now)
        claims.expect_outputs(changes.runs, now)
    for run, addresses in changes.taken:
        claims.start_held_run(run, snapshot.spec_of(run.job), addresses, now)
    for state, ids_of in changes.replicas.items():
        _replicas(ids=ids_of, state=state)
    if changes.restarted:
        Replica.objects.filter(pk__in=changes.restarted).update(restarts=F("restarts") + 1)
    if changes.new_attempt:
        Replica.objects.filter(pk__in=changes.new_attempt).update(restarts=0)
    job_history.save(changes.transitions)


def _record_unproved_runs(changes: Changes) -> None:
    """Record runs that no host has proved closed: in the run, and in the host's history, where the line stands after
    "unreachable" and before the host answers again."""
    for left in changes.unproved_runs:
        _left(run=left.run, silent_since=left.since)
    for host, jobs in sorted(changes.unproved_by_host.items()):
        text = said(
            "Ended without this host's proof: {jobs}. What may still live here is stopped when it answers.",
            jobs=list_text(jobs),
        )
        host_history.record(host, JOB_ENDED, text, host_history.TRAINYARD, changes.now, limited=False)
