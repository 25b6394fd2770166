"""The outcome of a job: is it known now, from the ends of its runs, its cancel and its deadlines, and which is it?

Only the latest run of each replica counts: earlier runs were followed by a restart. An outcome once written stays, with
three exceptions: a cancel wins over "the whole job again"; the message of a failure may be completed with more failed
replicas, and with the one that was lost first (`first_lost.py`); and where all replicas restart with a lost one, a
failure that came from the loss of a peer, which was reported later, becomes "the whole job again". Of several things
known at once, the first of this list holds:

1. a requested cancel,
2. the success of the primary: what its peers do when it leaves them is not an error of the job,
3. a timeout that a host enforced: peers that fail because of it are its consequence,
4. a permanent error of any replica,
5. a transient error, an internal error, a replica lost too often: the whole job again if there is a try left;
   a GPU that another process uses: the whole job again, because it has not begun there,
6. the job's timeout by the console's clock; it comes after the errors so that it does not hide an error of which the
   console hears late,
7. a start that takes too long: a gang starts whole, or gives its claims back and names the hosts that did not start it,
8. waiting too long for capacity,
9. that the job must leave its hosts: a host is drained by force, or the job makes room for another one.

Where the whole job would be run again but its timeout is over, it is the timeout that counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agents.infra.texts import join, moment, said
from jobs.rules.lifecycle import first_lost, retry, retry_waits
from jobs.rules.lifecycle.retry import EndClass
from jobs.rules.lifecycle.states import TERMINAL, JobState, RunPhase
from jobs.rules.lifecycle.views import JobView, Outcome, ReplicaView, RunView
from jobs.rules.list_text import MAX_ITEMS, list_text
from jobs.rules.spec import reduction
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.json_fields import duration

# Phases in which, as far as its host has reported, the command was not executed yet.
NOT_YET = frozenset({RunPhase.CREATED, RunPhase.CLAIMED})
LOG_REST_BYTES, LOG_WAIT_S = 64 * 1024, 30.0
PLACED = frozenset({JobState.PENDING, JobState.RUNNING})


@dataclass(frozen=True)
class JobCase:
    """The view of a job, with what decisions derive from it several times."""

    view: JobView
    now: datetime
    latest: dict[str, RunView] = field(init=False)
    # Held runs, to which replicas move, by replica; and held runs that are not needed any more, to be given back.
    held_runs: dict[str, RunView] = field(init=False)
    unneeded_held_runs: tuple[RunView, ...] = field(init=False)
    ends: dict[str, EndClass] = field(init=False)

    def __post_init__(self) -> None:
        latest: dict[str, RunView] = {}
        for run in self.view.runs:
            if run.attempt != self.view.attempt or run.held:
                continue
            if self._newer(run, latest.get(run.replica)):
                latest[run.replica] = run
        ends: dict[str, EndClass] = {}
        has_reducers = reduction.reducers(self.view.spec) is not None
        for replica in self.view.replicas:
            run_of = latest.get(replica.name)
            reducer = has_reducers and replica.pool == reduction.POOL
            end = retry.classify(run_of, replica.primary, reducer) if run_of else None
            if end is not None:
                ends[replica.name] = end
        object.__setattr__(self, "latest", latest)
        object.__setattr__(self, "ends", ends)
        if self.view.outcome is None and retry.restarts_together(self.view.spec) and self.lost_first():
            # All are restarted for the lost one: what its peers died of is no error of theirs.
            for run, _ in self.ended(*retry.PERMANENT):
                ends[run.replica] = EndClass.STOPPED
        held = [
            run for run in self.view.runs if run.held and not run.phase.over and run.stop_wanted_at is None
        ]
        done = [run for run in held if ends.get(run.replica) in retry.WELL]
        object.__setattr__(self, "held_runs", {run.replica: run for run in held if run not in done})
        object.__setattr__(self, "unneeded_held_runs", tuple(done))

    @staticmethod
    def _newer(run: RunView, than: RunView | None) -> bool:
        return than is None or run.number > than.number

    @property
    def open(self) -> list[RunView]:
        return [run for run in self.view.runs if run.phase != RunPhase.CLOSED]

    @property
    def logs_to_fetch(self) -> list[RunView]:
        """Closed runs of which a host that answers still has much of the log: the job waits a while for it, so that who
        reads that the job is over finds its whole log. Small rests arrive in the moments after; nobody waits for them.
        """
        return [
            run
            for run in self.latest.values()
            if run.phase == RunPhase.CLOSED
            and run.log_missing > LOG_REST_BYTES
            and run.closed_at is not None
            and run.unreachable_since is None
            and not run.gone
            # The time is that of the host's clock. A clock that is wrong makes nothing wait for ever.
            and abs((self.now - run.closed_at).total_seconds()) < LOG_WAIT_S
        ]

    def ended(self, *classes: EndClass) -> list[tuple[RunView, EndClass]]:
        """The latest runs whose ends have these classes, in the order of the replicas."""
        return [
            (self.latest[replica.name], self.ends[replica.name])
            for replica in self.view.replicas
            if self.ends.get(replica.name) in classes
        ]

    def lost_first(self, classes: frozenset[EndClass] = retry.PERMANENT) -> RunView | None:
        """The run that was lost before all those failed whose ends have these classes."""
        return first_lost.lost_first(self.view.runs, [run for run, _ in self.ended(*classes)])

    @property
    def late(self) -> list[RunView]:
        """Runs of a PENDING job that their hosts should have started by now."""
        limit_s = self.view.start_limit_s
        if limit_s is None or self.view.state != JobState.PENDING:
            return []
        since = self.now - timedelta(seconds=limit_s)
        runs = (self.latest.get(replica.name) for replica in self.view.replicas)
        return [run for run in runs if run and (began := self.asked_at(run)) and began <= since]

    def asked_at(self, run: RunView) -> datetime | None:
        """Since when a run that is not started yet could have been. None: it is, or its hosts are being prepared, which
        may take as long as it takes while they answer."""
        if run.phase not in NOT_YET:
            return None
        if run.preparing:
            return run.unreachable_since and self.view.sure(max(run.created_at, run.unreachable_since))
        return self.view.sure(run.prepared_at or run.created_at)

    def lost(self) -> Iterator[tuple[ReplicaView, RunView]]:
        """Replicas whose latest run is over and that should start again.

        A run that Trainyard stopped counts as lost too, as long as the job has no outcome.
        """
        for replica in self.view.replicas:
            if self.ends.get(replica.name) in (EndClass.NOT_PERMANENT, EndClass.STOPPED):
                yield replica, self.latest[replica.name]

    def up(self, replica: ReplicaView) -> bool:
        run = self.latest.get(replica.name)
        return run is not None and (
            run.phase == RunPhase.RUNNING or self.ends.get(replica.name) in retry.WELL
        )

    def was_up(self, replica: ReplicaView) -> bool:
        run = self.latest.get(replica.name)
        return run is not None and (run.phase == RunPhase.RUNNING or run.started_at is not None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome that is decided now, the counters that change with it, and its cause for history."""

    outcome: Outcome
    cause: str
    job_retries: int | None = None
    internal_tries: int | None = None
    wait_s: float = 0.0
    """How long the next attempt waits."""


def verdict(case: JobCase) -> Verdict | None:
    """The outcome that is new; None when none is known, or when it was decided before."""
    view = case.view
    if view.state in TERMINAL:
        return None
    if view.cancel_requested_at is not None and (
        view.outcome is None or view.outcome.state == JobState.QUEUED
    ):
        by = said("Cancelled by {person}.", person=view.cancel_requested_by or said("somebody"))
        why = join(" ", [by, view.cancel_reason]) if view.cancel_reason else by
        return Verdict(retry.cancelled(view.cancel_reason), why)
    if view.outcome is not None:
        return _no_time_left(case) if view.outcome.state == JobState.QUEUED else _failed_too(case)
    new = _by_ends(case) or _by_clock(case) or _preempted(case)
    return _no_time_left(case) or new if new and new.outcome.state == JobState.QUEUED else new


def _failed_too(case: JobCase) -> Verdict | None:
    """Until the end is reached, the message is completed with replicas that failed before our stop reached them."""
    outcome, ends = case.view.outcome, _in_order(case.ended(*retry.PERMANENT))
    if outcome is None or outcome.state != JobState.FAILED:
        return None
    named = [end for end in ends if retry.failed([end]).message in outcome.message]
    if not named or not outcome.message.endswith(retry.failed(named).message):
        return None
    lost = case.lost_first()
    if lost is not None and retry.restarts_together(case.view.spec):
        return _again_or(case, [(lost, EndClass.NOT_PERMANENT)], _failed(case, ends))
    complete = _failed(case, ends)
    return None if complete == outcome else Verdict(complete, _sentence(_words(ends, lost)))


def _failed(case: JobCase, ends: list[tuple[RunView, EndClass]]) -> Outcome:
    """FAILED, with the replica that was lost first before those that may have failed because of it."""
    return retry.failed(ends, first_lost.lost_first(case.view.runs, [run for run, _ in ends]))


def _in_order(ends: list[tuple[RunView, EndClass]]) -> list[tuple[RunView, EndClass]]:
    """The replica that failed first comes first."""
    return sorted(ends, key=lambda end: (end[0].ended_at is None, end[0].ended_at or end[0].created_at))


def _no_time_left(case: JobCase) -> Verdict | None:
    """The timeout, if it is over: the job is then not run again."""
    runs_until = deadline(case, case.view.started_at)
    return _over_time(case) if runs_until is not None and case.now >= runs_until else None


def _preempted(case: JobCase) -> Verdict | None:
    """The job leaves its hosts for maintenance or for another job, and waits for others. It counts against nothing."""
    why = case.view.preempted
    return Verdict(retry.whole_job_again(why), why) if why and case.view.state in PLACED else None


def _by_ends(case: JobCase) -> Verdict | None:
    for run, _ in case.ended(EndClass.SUCCESS):
        why = said(
            "The primary, {replica}, exited with status 0 on {host}.", replica=run.replica, host=run.host
        )
        return Verdict(Outcome(JobState.SUCCEEDED), why)
    timed_out = case.ended(EndClass.TIMEOUT)
    if timed_out:
        return _timed_out(case.view.spec, _sentence(_words(timed_out)))
    permanent = _in_order(case.ended(*retry.PERMANENT))
    if permanent:
        return Verdict(_failed(case, permanent), _sentence(_words(permanent, case.lost_first())))
    return _transient(case) or _internal(case) or _busy(case) or _unprepared(case) or _lost_too_often(case)


def _transient(case: JobCase) -> Verdict | None:
    ends = _in_order(case.ended(EndClass.TRANSIENT))
    return _again_or(case, ends, _failed(case, ends)) if ends else None


def _lost_too_often(case: JobCase) -> Verdict | None:
    if case.held_runs:
        return None  # a replica that is lost meanwhile starts again with the move
    together = retry.restarts_together(case.view.spec)
    lost = list(case.lost())
    if EndClass.NOT_PERMANENT not in {case.ends[replica.name] for replica, _ in lost}:
        return None  # a replica that we stopped and still want costs no restart
    if not together:
        lost = [each for each in lost if case.ends[each[0].name] == EndClass.NOT_PERMANENT]
    ends = [(run, EndClass.NOT_PERMANENT) for replica, run in lost if not retry.may_restart(replica)]
    if not ends and together and case.ended(EndClass.FINISHED):
        # All are to be restarted, but one has finished and holds no claims any more: all need new placements together.
        ends = [(run, EndClass.NOT_PERMANENT) for _, run in lost]
    return _again_or(case, ends, retry.failed(ends)) if ends else None


def _again_or(case: JobCase, ends: list[tuple[RunView, EndClass]], failed: Outcome) -> Verdict:
    view = case.view
    if not retry.may_retry_job(view.spec, view.job_retries):
        return Verdict(failed, _without_a_try(view, _words(ends)))
    retries = view.job_retries + 1
    why = said(
        "{what}; the whole job is run again, retry {retry} of {most}.",
        what=_words(ends),
        retry=retries,
        most=retry.MAX_RETRIES,
    )
    wait_s = retry_waits.retry_wait_s(retries, view.retry_wait_s)
    return Verdict(retry.whole_job_again(why), why, job_retries=retries, wait_s=wait_s)


def _internal(case: JobCase) -> Verdict | None:
    ends = case.ended(EndClass.INTERNAL)
    if not ends:
        return None
    return _tried_again(case.view, _words(ends))


def _started_too_late(case: JobCase) -> Verdict | None:
    """Give the claims back (on a host that does not answer, when it has answered): elsewhere the job may start."""
    late, limit_s = case.late, case.view.start_limit_s
    if not late or limit_s is None:
        return None
    who, limit = list_text([_did_not_start(run) for run in late]), duration(limit_s)
    if len(late) > MAX_ITEMS:
        what = said("{who} replicas within {limit}", who=who, limit=limit)
    else:
        what = said("{who} within {limit}", who=who, limit=limit)
    return _tried_again(case.view, what)


def _did_not_start(run: RunView) -> str:
    if run.unreachable_since is None:
        return said("{host} did not start {replica}", host=run.host, replica=run.replica)
    return said(
        "{host} did not start {replica} (no answer since {time})",
        host=run.host,
        replica=run.replica,
        time=moment(run.unreachable_since),
    )


def _tried_again(view: JobView, what: str) -> Verdict:
    tries = view.internal_tries + 1
    if not retry.may_try_again(view.spec, view.job_retries, tries):
        return Verdict(retry.internal_error(), _without_a_try(view, what), internal_tries=tries)
    why = said(
        "{what}; the whole job is tried again, try {number} of {most}.",
        what=what,
        number=tries + 1,
        most=retry.MAX_INTERNAL_TRIES,
    )
    retries = view.job_retries + 1
    wait_s = retry_waits.retry_wait_s(retries, view.retry_wait_s)
    return Verdict(retry.whole_job_again(why), why, retries, tries, wait_s)


def _busy(case: JobCase) -> Verdict | None:
    """Other processes were on its GPUs, which are in quarantine by now. The job is placed elsewhere, or waits; it is
    not to blame."""
    ends = case.ended(EndClass.BUSY)
    if not ends:
        return None
    why = said("{what}; another place is taken, which counts against nothing.", what=_words(ends))
    return Verdict(retry.whole_job_again(why), why)


def _unprepared(case: JobCase) -> Verdict | None:
    """A host that was believed to have everything has thrown some of it away, and is asked for it anew."""
    ends = case.ended(EndClass.UNPREPARED)
    if not ends:
        return None
    why = said("{what}; its host prepares it again, which counts against nothing.", what=_words(ends))
    return Verdict(retry.whole_job_again(why), why)


def _without_a_try(view: JobView, what: str) -> str:
    if view.spec.disable_retries:
        return said("{what}; retries are disabled.", what=what)
    return said("{what}; no try is left.", what=what)


def _words(ends: list[tuple[RunView, EndClass]], lost: RunView | None = None) -> str:
    runs = [*([lost] if lost else []), *(run for run, _ in ends[:8])]
    return join("; ", [retry.replica_ended(run) for run in runs])


def _sentence(words: str) -> str:
    return said("{words}.", words=words)


def _timed_out(spec: CustomJobSpec, cause: str) -> Verdict:
    return Verdict(retry.timed_out(duration(spec.timeout_s)), cause)


def _over_time(case: JobCase) -> Verdict:
    spec = case.view.spec
    return _timed_out(
        spec, said("The job has run for its timeout of {timeout}.", timeout=duration(spec.timeout_s))
    )


def _by_clock(case: JobCase) -> Verdict | None:
    view = case.view
    over = _no_time_left(case) or _started_too_late(case)
    if over:
        return over
    waits_until = wait_deadline(view)
    if waits_until is None or case.now < waits_until:
        return None
    waited = said(
        "No capacity in {location} for {time}",
        location=view.location or said("the location"),
        time=duration(view.spec.wait_limit_s or 0),
    )
    if not retry.may_retry_job(view.spec, view.job_retries):
        return Verdict(retry.no_capacity(view.location), _without_a_try(view, waited))
    retries = view.job_retries + 1
    why = said(
        "{what}; tried again, retry {retry} of {most}.", what=waited, retry=retries, most=retry.MAX_RETRIES
    )
    return Verdict(retry.whole_job_again(why), why, job_retries=retries)


def deadline(case: JobCase, started_at: datetime | None) -> datetime | None:
    """When the job's timeout is over. It counts from the first time the job ran, across all attempts.

    If the console lost the time since then, the monotonic clocks of the hosts tell for how long the runs have run.
    Until they have answered, nothing ends: each host keeps the timeout of its run by itself.
    """
    if started_at is None:
        return None
    view, limit = case.view, timedelta(seconds=case.view.spec.timeout_s)
    if not view.in_doubt or view.clock_unsure_since is None:
        return started_at + limit
    measured = [
        run.measured_start + (started_at + limit - run.created_at)
        for run in case.latest.values()
        if run.phase == RunPhase.RUNNING and run.measured_start and run.created_at < view.clock_unsure_since
    ]
    latest = view.clock_unsure_since + limit
    return min(latest, max(measured, default=latest))


def wait_deadline(view: JobView) -> datetime | None:
    """When this attempt has waited for capacity as long as it may; None when it may wait for ever.

    A job that waits for quota does not wait for capacity: it never fails for being over quota, and that time is not
    counted. Where it is not known when the attempt began to wait, only a job that never ran has a deadline: it has done
    nothing but wait since it was created.
    """
    limit_s = view.spec.wait_limit_s
    if view.state != JobState.QUEUED or limit_s is None or view.quota_since is not None:
        return None
    limit_s += view.quota_s
    if view.queued_at is not None:
        return view.sure(view.queued_at) + timedelta(seconds=limit_s)
    if view.started_at is None:
        return view.sure(view.created_at) + timedelta(seconds=limit_s * (view.job_retries + 1))
    return None
