"""What sort of thing a line of a job's history tells. The page filters by it, notifications choose by it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum

from jobs.rules.lifecycle.plan import HistoryEvent
from jobs.rules.lifecycle.states import FlagName, JobState
from jobs.rules.lifecycle.views import Flag


class HistoryKind(StrEnum):
    STATE = "state"  # the job is in another state
    REPLICA = "replica"  # a replica is in another state because we wanted it
    RUN = "run"  # a host told about a run: it began, it ended
    PLACEMENT = "placement"  # who got which host
    WAIT = "wait"  # why it waits, when that became another reason
    QUOTA = "quota"  # it waits for quota
    RESTART = "restart"  # a replica is started again under its name
    RETRY = "retry"  # the whole job is run again
    DRAIN = "drain"  # moved away from a host in maintenance
    PREEMPT = "preempt"  # back to the queue for somebody who goes first
    FLAG = "flag"  # something began or ceased to be true beside the state
    CANCEL = "cancel"
    NOTICE = "notice"  # somebody was told, or could not be


JOB = "job"
# Subjects of lines about the job that change no state of it: `subject == JOB` is the chain of its states, nothing else.
WAITING, FLAGGED, TOLD = "wait", "flag", "notice"
ABOUT_THE_JOB = frozenset({JOB, WAITING, FLAGGED, TOLD})

# Of these a line of its own says the same at the same moment (the restart, the decision to stop).
_TOLD_OTHERWISE = frozenset({FlagName.STOPPING, FlagName.RESTARTING})
_OF_JOB = {
    JobState.QUEUED: HistoryKind.RETRY,
    JobState.PENDING: HistoryKind.PLACEMENT,
    JobState.CANCELLING: HistoryKind.CANCEL,
    JobState.CANCELLED: HistoryKind.CANCEL,
}


def kind_of(event: HistoryEvent, restarted: Collection[str]) -> HistoryKind:
    """What a plan's event is, unless whoever planned it said so."""
    if event.kind:
        return HistoryKind(event.kind)
    if event.subject == JOB:
        return _OF_JOB.get(JobState(event.to_state), HistoryKind.STATE)
    if event.subject in restarted:
        return HistoryKind.RESTART
    return HistoryKind.RUN if event.host_at else HistoryKind.REPLICA


def flag_events(before: Sequence[Flag], after: Sequence[Flag]) -> Iterator[HistoryEvent]:
    """Flags that came and went. Another text of the same flag is no event: it changes with every host that is late."""
    had, has = {flag.name for flag in before}, {flag.name for flag in after}
    for flag in after:
        if flag.name not in had and flag.name not in _TOLD_OTHERWISE:
            yield HistoryEvent(FLAGGED, "", flag.name, flag.text, kind=HistoryKind.FLAG)
    for flag in before:
        if flag.name not in has and flag.name not in _TOLD_OTHERWISE:
            yield HistoryEvent(FLAGGED, flag.name, "", "It is over.", kind=HistoryKind.FLAG)
