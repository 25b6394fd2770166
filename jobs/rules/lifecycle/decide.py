"""The one decision about a job: from what is true now to what should be changed.

`decide` may be called at any time and any number of times. It uses nothing but its arguments, so it does not matter
which fact arrived first, twice or late, nor which process calls it. A plan holds differences only: after a plan was
applied, deciding again gives the empty plan until a new fact is known.

It never places a job: a QUEUED job belongs to the scheduler until the scheduler writes `PENDING` with its first runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from agents.infra.texts import join, said, said_of
from jobs.rules.lifecycle import retry, unconnected
from jobs.rules.lifecycle.flags import flags, last_flags, moves, unreachable
from jobs.rules.lifecycle.history_kinds import JOB, HistoryKind
from jobs.rules.lifecycle.inactivity import next_look
from jobs.rules.lifecycle.plan import (
    TRAINYARD,
    HistoryEvent,
    Plan,
    Restart,
    StartHeldRun,
    Stop,
    UnprovedRun,
)
from jobs.rules.lifecycle.plan_builder import PlanBuilder, which_restart
from jobs.rules.lifecycle.retry import EndClass
from jobs.rules.lifecycle.states import TERMINAL, JobState, ReplicaState, RunPhase, legal
from jobs.rules.lifecycle.verdict import JobCase, Verdict, deadline, verdict, wait_deadline
from jobs.rules.lifecycle.views import JobView, Outcome, ReplicaView, RunView
from jobs.rules.spec.custom_job import CustomJobSpec

# A job that starts or stops is decided about this often even if all hints about it were lost; a running one less often.
LOOK_AGAIN_S = 60.0
LOOK_AGAIN_RUNNING_S = 600.0
# A job that waits for the rest of its log only is decided about this often.
LOG_LOOK_S = 0.5
# The host itself ends a run this long after the console would have ended the job. So while the console is alive, the
# end is decided in one place, before the timeout of one replica looks like an error to its peers.
HOST_TIMEOUT_MARGIN_S = 5.0


def decide(view: JobView, now: datetime, grace_s: float, leave_grace_s: float | None = None) -> Plan:
    """What should be changed now, given what is now true.

    `leave_grace_s`: the grace of replicas that must leave their host through no fault of theirs, so that they can save
    their work. `grace_s`: the grace of all others.
    """
    case = JobCase(view, now)
    if view.state in TERMINAL:
        return _beside_a_terminal_job(case, grace_s)
    new = verdict(case)
    outcome = new.outcome if new else view.outcome
    builder = PlanBuilder(case, grace_s, outcome)
    if new and new.wait_s:
        builder.rests_until = now + timedelta(seconds=new.wait_s)
    leaves = case.held_runs if outcome is None else view.preempted and outcome.state == JobState.QUEUED
    if leaves and leave_grace_s is not None:
        builder.grace_s = leave_grace_s
    if outcome is None:
        _go_on(builder)
    else:
        _end(builder, outcome, new)
    return _plan(builder, new)


def timeout_left_s(
    spec: CustomJobSpec, started_at: datetime | None, now: datetime, unsure_since: datetime | None = None
) -> float:
    """The timeout of a run that is created now. Its host enforces it when the console is unreachable.

    What the job ran before the console lost the time (`unsure_since`) is not known, and does not count.
    """
    ran_s = 0.0 if started_at is None else (now - max(started_at, unsure_since or started_at)).total_seconds()
    return max(spec.timeout_s - ran_s, 0.0) + HOST_TIMEOUT_MARGIN_S


# -- the job goes on -------------------------------------------------------------------------------------------------


def _go_on(builder: PlanBuilder) -> None:
    case, view = builder.case, builder.view
    if view.state == JobState.PENDING and all(case.up(replica) for replica in view.replicas):
        builder.move(JobState.RUNNING, HistoryKind.STATE, _all_up(view))
    for held in case.unneeded_held_runs:
        builder.stops[held.id] = Stop(
            held.id, 0.0, said("{replica} is done, and need not move any more.", replica=held.replica)
        )
    lost = list(case.lost())
    if case.held_runs:
        _move(builder)
    elif any(run.gone for _, run in lost):
        pass  # nothing starts there again: the scheduler places it elsewhere, or sends the job back to the queue
    elif retry.restarts_together(view.spec) and any(
        case.ends[replica.name] == EndClass.NOT_PERMANENT for replica, _ in lost
    ):
        _restart_together(builder, lost)
    else:
        for replica, run in lost:
            if run.phase != RunPhase.CLOSED:
                continue
            if case.ends[replica.name] == EndClass.STOPPED:
                why: str = said(
                    "{replica} was stopped for a move that is not needed any more; started again.",
                    replica=replica.name,
                )
                builder.restarts[replica.name] = Restart(replica.name, run.id, why, counts=False)
            elif not builder.waits_to_restart(replica, run, why := retry.replica_ended(run)):
                _restart(builder, replica, run, why)


def _move(builder: PlanBuilder) -> None:
    """Some replicas have held runs on other hosts. Stop all replicas; when all are closed, start all of them with the
    new addresses.

    A job has no network of its own: a replica on another host has another address, and its peers learn it only from the
    CLUSTER_SPEC with which they are started.
    """
    case = builder.case
    why = moves(case)
    builder.stop_open(said("{why}; the job goes on when all are stopped.", why=why))
    going = [
        replica.name for replica in builder.view.replicas if case.ends.get(replica.name) not in retry.WELL
    ]
    if any(case.latest[name].phase != RunPhase.CLOSED for name in going):
        return
    for name in going:
        run, held = case.latest[name], case.held_runs.get(name)
        if held is None:
            cause = said(
                "Restarted with the new addresses of its peers, which counts against nothing: {why}.", why=why
            )
            builder.restarts[name] = Restart(name, run.id, cause, counts=False)
        else:
            cause = said(
                "{replica} moves from {host} to {new_host}: {why}.",
                replica=name,
                host=run.host,
                new_host=held.host,
                why=held.held_why,
            )
            builder.restarts[name] = StartHeldRun(name, held.id, run.id, cause, counts=run.gone)


def _all_up(view: JobView) -> str:
    return said_of(len(view.replicas), "The replica is up.", "All {number} replicas are up.")


def _restart(builder: PlanBuilder, replica: ReplicaView, run: RunView, why: str) -> None:
    cause = said("{why}; {which_restart}.", why=why, which_restart=which_restart(replica))
    builder.restarts[replica.name] = Restart(replica.name, run.id, cause)


def _restart_together(builder: PlanBuilder, lost: list[tuple[ReplicaView, RunView]]) -> None:
    """A replica was lost, and the job asks for a restart of all: stop the others; when all are closed, start all."""
    case = builder.case
    causes = [(replica, run) for replica, run in lost if case.ends[replica.name] == EndClass.NOT_PERMANENT]
    # The cause that waits already, if there is one: a peer may be found lost meanwhile.
    replica, run = max(causes or lost, key=lambda each: each[1].restart_at is not None)
    why = retry.replica_ended(run)
    builder.together_with = replica.name
    builder.stop_open(said("{why}; all replicas are restarted together.", why=why))
    if any(run.phase != RunPhase.CLOSED for run in case.latest.values()):
        return
    if not builder.waits_to_restart(replica, run, why):
        together = said("All replicas are restarted together: {why}", why=why)
        for each in builder.view.replicas:
            _restart(builder, each, case.latest[each.name], together)


# -- the job ends, or is run again -----------------------------------------------------------------------------------


def _end(builder: PlanBuilder, outcome: Outcome, new: Verdict | None) -> None:
    view = builder.view
    cause = new.cause if new else _cause(builder, outcome)
    if (
        new
        and view.state == JobState.PENDING
        and all(builder.case.was_up(replica) for replica in view.replicas)
    ):
        # The job was over before we saw it run; it has run all the same.
        builder.move(JobState.RUNNING, HistoryKind.STATE, _all_up(view))
    builder.stop_open(cause)
    if outcome.state == JobState.QUEUED:
        # A host that is unreachable proves nothing: no new attempt begins beside a run that may live. The claims of its
        # closed runs are free again.
        if not builder.case.open:
            again = HistoryKind.PREEMPT if view.preempted else HistoryKind.RETRY
            builder.move(JobState.QUEUED, again, join(" ", [cause, *builder.rest()]))
            builder.next_attempt = True
        return
    left = tuple(
        UnprovedRun(run.id, run.unreachable_since)
        for run in builder.case.open
        if run.unreachable_since is not None
    )
    if not builder.case.open and builder.case.logs_to_fetch:
        builder.look_at = builder.case.now + timedelta(seconds=LOG_LOOK_S)
        if outcome.state == JobState.CANCELLED and builder.state != JobState.CANCELLING:
            builder.move(JobState.CANCELLING, HistoryKind.CANCEL, cause, _actor(view, outcome))
        return
    if len(left) == len(builder.case.open):
        builder.left = left
        kind = HistoryKind.CANCEL if outcome.state == JobState.CANCELLED else HistoryKind.STATE
        builder.move(outcome.state, kind, _beside(builder, cause), _actor(view, outcome))
    elif outcome.state == JobState.CANCELLED and builder.state != JobState.CANCELLING:
        builder.move(JobState.CANCELLING, HistoryKind.CANCEL, cause, _actor(view, outcome))


def _beside(builder: PlanBuilder, cause: str) -> str:
    """The cause of an end, with the runs that may still live on hosts that do not answer."""
    if not builder.left:
        return cause
    silent = unreachable(builder.case)
    after = said("What may still live there is stopped as soon as its host answers.")
    whole = cause if cause.endswith(".") else said("{words}.", words=cause)
    return join(" ", [whole, silent, after])


def _cause(builder: PlanBuilder, outcome: Outcome) -> str:
    """Why the job ended, for the line that is written when the end is reached. Where the message of the error says
    little, what the hosts reported is added."""
    if outcome.state == JobState.SUCCEEDED:
        if builder.case.open:
            return said("The primary exited with status 0, and all that could be reached is stopped.")
        return said("The primary exited with status 0, and every other replica is stopped.")
    if outcome == retry.cancelled(builder.view.cancel_reason):
        if builder.case.open:
            return said("Cancelled, and all that could be reached is stopped.")
        return said("Cancelled, and everything is stopped.")
    words = [retry.replica_ended(run) for run, _ in builder.case.ended(EndClass.INTERNAL)]
    if outcome == retry.internal_error() and not words:
        waited = (run for run in builder.case.latest.values() if run.started_at is None)
        words = [said("{host} did not start {replica}", host=run.host, replica=run.replica) for run in waited]
    if not words:
        return outcome.message
    return said("{error} ({words})", error=outcome.message, words=join("; ", words[:8]))


def _actor(view: JobView, outcome: Outcome) -> str:
    asked = outcome == retry.cancelled(view.cancel_reason) and view.cancel_requested_by
    return asked or TRAINYARD


def _beside_a_terminal_job(case: JobCase, grace_s: float) -> Plan:
    """The row of a terminal job never changes again. Its runs on hosts that did not answer may still close."""
    builder = PlanBuilder(case, grace_s, case.view.outcome or Outcome(case.view.state))
    builder.stop_open(said("The job is over."))
    changes, events = _replicas(builder)
    return Plan(replica_states=changes, stop=tuple(builder.stops.values()), events=events)


# -- the plan --------------------------------------------------------------------------------------------------------


def _plan(builder: PlanBuilder, new: Verdict | None) -> Plan:
    view, case = builder.view, builder.case
    over = builder.state in TERMINAL
    changes, replica_events = _replicas(builder)
    states = {replica.name: changes.get(replica.name, replica.state) for replica in view.replicas}
    moved = bool(case.held_runs and builder.restarts)
    if over:
        beside = last_flags(case, builder.outcome)
    else:
        beside = () if builder.next_attempt else flags(case, builder.outcome, states, moved, builder.waits)
    due_at, reschedule = _due(builder)
    last = builder.moves[-1] if builder.moves else None
    return Plan(
        state=last.state if last else None,
        cause=last.cause if last else (new.cause if new else ""),
        actor=last.actor if last else TRAINYARD,
        outcome=new.outcome if new and not builder.next_attempt else None,
        replica_states=changes,
        restart=tuple(each for each in builder.restarts.values() if isinstance(each, Restart)),
        wait=tuple(builder.new_waits.values()),
        take=tuple(each for each in builder.restarts.values() if isinstance(each, StartHeldRun)),
        stop=tuple(builder.stops.values()),
        left=builder.left,
        next_attempt=builder.next_attempt,
        rests_until=builder.rests_until,
        reason=last.cause if last and builder.next_attempt and builder.rests_until else "",
        job_retries=new.job_retries if new else None,
        internal_tries=new.internal_tries if new else None,
        started_at=None if view.started_at else builder.started_at,
        ended_at=case.now if over else None,
        flags=None if beside == view.flags else beside,
        due_at=due_at,
        reschedule=reschedule,
        events=(*replica_events, *_job_events(builder)),
    )


def _job_events(builder: PlanBuilder) -> list[HistoryEvent]:
    before, events = builder.view.state, []
    for each in builder.moves:
        events.append(HistoryEvent(each.kind, JOB, before, each.state, each.cause))
        before = each.state
    return events


def _replicas(builder: PlanBuilder) -> tuple[Mapping[str, ReplicaState], tuple[HistoryEvent, ...]]:
    """The new states of replicas, and the lines of history about replicas."""
    changes: dict[str, ReplicaState] = {}
    events: list[HistoryEvent] = []
    for replica in builder.view.replicas:
        state = _replica_state(builder, replica)
        restart = builder.restarts.get(replica.name) or builder.new_waits.get(replica.name)
        if not legal(replica.state, state) or (state == replica.state and restart is None):
            continue  # nothing new, or an old fact: a replica that is over stays so
        if state != replica.state:
            changes[replica.name] = state
        events.append(_replica_event(builder, replica, state))
    return changes, tuple(events)


def _replica_state(builder: PlanBuilder, replica: ReplicaView) -> ReplicaState:
    run, end = builder.case.latest.get(replica.name), builder.case.ends.get(replica.name)
    if builder.next_attempt or run is None:
        return ReplicaState.WAITING
    if end is None:
        if run.stop_wanted_at is not None or run.id in builder.stops:
            return ReplicaState.STOPPING
        return ReplicaState.RUNNING if run.phase == RunPhase.RUNNING else ReplicaState.STARTING
    comes_back = builder.together_with or end in (EndClass.NOT_PERMANENT, EndClass.STOPPED)
    if builder.outcome is None and comes_back:
        return ReplicaState.STARTING
    if end in retry.WELL:
        return ReplicaState.FINISHED
    if end == EndClass.NOT_PERMANENT and run.stop_wanted_at is not None:
        return ReplicaState.STOPPED  # the reboot did what our stop was to do
    return ReplicaState.STOPPED if end in (EndClass.STOPPED, EndClass.TIMEOUT) else ReplicaState.FAILED


def _replica_event(builder: PlanBuilder, replica: ReplicaView, state: ReplicaState) -> HistoryEvent:
    run = builder.case.latest.get(replica.name)
    host_at, cause = None, ""
    kind = HistoryKind.REPLICA
    if builder.next_attempt or run is None:
        cause = said("Waits for the next attempt.")
    elif replica.name in builder.restarts:
        kind = HistoryKind.DRAIN if builder.case.held_runs else HistoryKind.RESTART
        cause = builder.restarts[replica.name].cause
    elif replica.name in builder.new_waits:
        cause = builder.new_waits[replica.name].cause
    elif run.phase.over:
        cause, host_at = said("{words}.", words=retry.replica_ended(run)), run.ended_at
    elif state == ReplicaState.STOPPING:
        stop = builder.stops.get(run.id)
        cause = stop.reason if stop else said("Being stopped.")
    elif state == ReplicaState.RUNNING:
        cause, host_at = said("Started on {host}.", host=run.host), run.started_at
    else:
        cause = said("Starting on {host}.", host=run.host)
    if host_at is not None:
        kind = HistoryKind.RUN
    return HistoryEvent(kind, replica.name, replica.state, state, cause, host_at)


def _due(builder: PlanBuilder) -> tuple[datetime | None, bool]:
    """When to decide again, and whether the row holds another time."""
    kept, now = builder.view.due_at, builder.case.now
    wanted = _look_again(builder)
    if kept is not None and wanted is not None and now < kept <= wanted:
        return None, False
    return wanted, wanted != kept


def _look_again(builder: PlanBuilder) -> datetime | None:
    if builder.state in TERMINAL:
        return None
    view, now = builder.view, builder.case.now
    ends_at = None
    if builder.outcome is None or builder.next_attempt:
        ends_at = deadline(builder.case, builder.started_at)
    if builder.state == JobState.QUEUED:
        limit_s = view.spec.wait_limit_s
        waits_until = wait_deadline(view)
        if builder.next_attempt:
            begins = builder.rests_until or now
            waits_until = None if limit_s is None else begins + timedelta(seconds=limit_s)
        return min((at for at in (ends_at, waits_until) if at), default=None)
    going = builder.outcome is None and builder.state == JobState.RUNNING
    wanted = now + timedelta(seconds=LOOK_AGAIN_RUNNING_S if going else LOOK_AGAIN_S)
    going_on = builder.outcome is None
    looks = (next_look(builder.case), unconnected.next_look(builder.case)) if going_on else ()
    moments: tuple[datetime | None, ...] = (
        wanted,
        ends_at,
        _starts_until(builder),
        *looks,
        builder.look_at,
        *builder.waits.values(),
    )
    return min(at for at in moments if at)


def _starts_until(builder: PlanBuilder) -> datetime | None:
    """When the oldest run that its host has not started yet will be late."""
    limit_s = builder.view.start_limit_s
    if limit_s is None or builder.state != JobState.PENDING or builder.outcome is not None:
        return None
    asked = (builder.case.asked_at(run) for run in builder.case.latest.values())
    waiting = [at for at in asked if at is not None]
    return min(waiting) + timedelta(seconds=limit_s) if waiting else None
