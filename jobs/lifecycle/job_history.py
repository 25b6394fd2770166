"""Lines of a job's history, made from a decision. The code that decides writes them in the same transaction.

The text of why a job waits is written to the job at each pass in which it changes. History gets a line only when the
*reason* (wait_reasons.py) is another one, and at most one line in five minutes, so that people can read the history of
a job that waits for a month.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from agents.infra.sql import InsertStatement
from agents.infra.texts import said
from jobs.lifecycle.claims import Assignment
from jobs.lifecycle.snapshot import Rows, flags_of
from jobs.models import Job, Run, Transition
from jobs.rules.lifecycle import history_kinds
from jobs.rules.lifecycle.flags import flag_events
from jobs.rules.lifecycle.history_kinds import HistoryKind
from jobs.rules.lifecycle.plan import TRAINYARD, HistoryEvent, Plan
from jobs.rules.lifecycle.states import TERMINAL, JobState, ReplicaState
from jobs.rules.list_text import list_text
from jobs.rules.scheduling.wait_reasons import OF_QUOTA, Wait, is_other_reason

WAITS_APART = timedelta(minutes=5)


save = InsertStatement(Transition).many


def of_plan(rows: Rows, plan: Plan, now: datetime) -> list[Transition]:
    """One line for each event of a plan, and for each flag that it changes."""
    return [_line(rows, event, plan.actor, now) for event in (*plan.events, *_flags(rows.job, plan))]


def _flags(job: Job, plan: Plan) -> Iterable[HistoryEvent]:
    over = plan.next_attempt or (plan.state or job.state) in TERMINAL
    if plan.flags is None or over:
        return ()  # with an attempt's end all its flags are over
    return flag_events(flags_of(job), plan.flags)


def _line(rows: Rows, event: HistoryEvent, actor: str, now: datetime) -> Transition:
    run = _run_of(rows, event.subject)
    return Transition(
        job=rows.job,
        at=now,
        host_at=event.host_at,
        host_offset_s=run.host.clock_offset_s if run and event.host_at is not None else None,
        kind=event.kind,
        subject=event.subject,
        run=run.pk if run else "",
        from_state=event.from_state,
        to_state=event.to_state,
        attempt=rows.job.attempt,
        cause=event.cause,
        actor=actor,
    )


def _run_of(rows: Rows, replica: str) -> Run | None:
    """The latest run of this attempt of that replica."""
    if replica in history_kinds.ABOUT_THE_JOB:
        return None
    pk = next((row.pk for row in rows.replicas if row.name == replica), None)
    runs = [run for run in rows.runs if run.replica_id == pk and run.attempt == rows.job.attempt]
    return max(runs, key=lambda run: run.number, default=None)


def of_placement(job: Job, assignments: Sequence[Assignment], now: datetime) -> list[Transition]:
    """The lines about a job and its replicas that have got their hosts."""

    def line(kind: HistoryKind, subject: str, before: str, after: str, cause: str) -> Transition:
        return Transition(
            job=job,
            at=now,
            kind=kind,
            subject=subject,
            from_state=before,
            to_state=after,
            attempt=job.attempt,
            cause=cause,
            actor=TRAINYARD,
        )

    hosts = sorted({assignment.host.name for assignment in assignments})
    placed = said("Every replica has a place: {hosts}.", hosts=list_text(hosts))
    return [
        line(HistoryKind.PLACEMENT, history_kinds.JOB, JobState.QUEUED, JobState.PENDING, placed),
        *(
            line(
                HistoryKind.PLACEMENT,
                assignment.replica.name,
                assignment.replica.state,
                ReplicaState.STARTING,
                said("Starting on {host}.", host=assignment.host.name),
            )
            for assignment in assignments
        ),
    ]


def of_waiting(waits: Mapping[int, Wait], now: datetime) -> list[Transition]:
    """Lines for the jobs that wait for another reason than history says. `waits`: by job."""
    attempts = dict(
        Job.every.filter(pk__in=waits, state=JobState.QUEUED).order_by().values_list("pk", "attempt")
    )
    last = _last_waits(attempts)
    return [
        _wait_line(pk, attempt, waits[pk], now)
        for pk, attempt in attempts.items()
        if _is_news(last.get((pk, attempt)), waits[pk], now)
    ]


def _is_news(last: tuple[str, datetime] | None, wait: Wait, now: datetime) -> bool:
    if last is None:
        return True
    reason, at = last
    return is_other_reason(reason, wait.reason) and now - at >= WAITS_APART


def _last_waits(ids: Collection[int]) -> dict[tuple[int, int], tuple[str, datetime]]:
    """By job and attempt, the reason of the last line about its waiting, and when that was written."""
    rows = Transition.objects.filter(job__in=ids, subject=history_kinds.WAITING).order_by("pk")
    return {
        (job, attempt): (reason, at)
        for job, attempt, reason, at in rows.values_list("job", "attempt", "wait_reason", "at")
    }


def _wait_line(job_id: int, attempt: int, wait: Wait, now: datetime) -> Transition:
    return Transition(
        job_id=job_id,
        at=now,
        kind=HistoryKind.QUOTA if wait.reason in OF_QUOTA else HistoryKind.WAIT,
        subject=history_kinds.WAITING,
        wait_reason=wait.reason,
        from_state=JobState.QUEUED,
        to_state=JobState.QUEUED,
        attempt=attempt,
        cause=wait.text,
        actor=TRAINYARD,
    )
