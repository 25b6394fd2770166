"""The kinds of lines in a job's history. The job's page filters by kind, and notifications choose by kind.

Who writes a line names its kind: a decider in its `HistoryEvent`, the scheduler and the sender in their rows.
"""

from __future__ import annotations

from enum import StrEnum


class HistoryKind(StrEnum):
    STATE = "state"  # the job is in another state
    REPLICA = "replica"  # a replica is in another state by our decision
    RUN = "run"  # a host reported about a run: it began, or it ended
    PLACEMENT = "placement"  # which replica got which host
    WAIT = "wait"  # why the job waits, when that became another reason
    QUOTA = "quota"  # the job waits for quota
    RESTART = "restart"  # a replica is started again under its name
    RETRY = "retry"  # the whole job is run again
    DRAIN = "drain"  # a replica moved away from a host in maintenance
    PREEMPT = "preempt"  # the job went back to the queue for a job that goes first
    FLAG = "flag"  # something beside the state began or ceased to be true
    CANCEL = "cancel"  # somebody cancelled the job
    NOTIFICATION = "notice"  # somebody was notified, or could not be
    LABEL = "label"  # somebody gave the job labels, or took them away
    MOVE = "move"  # somebody moved the job in the queue
    OUTPUTS = "outputs"  # what the job wrote was stored, or is left on a host
    PREPARATION = "preparation"  # its hosts began to prepare what it needs, or have all of it


JOB = "job"
# Subjects of lines about the job that change no state of it: `subject == JOB` is the chain of its states, nothing else.
WAITING, FLAGGED, NOTIFIED, LABELLED, MOVED = "wait", "flag", "notice", "label", "move"
OUTPUTS, PREPARED = "outputs", "preparation"
ABOUT_THE_JOB = frozenset({JOB, WAITING, FLAGGED, NOTIFIED, LABELLED, MOVED, OUTPUTS, PREPARED})


class OutputEvent(StrEnum):
    """What a line about outputs says, in `to_state`."""

    STORED = "stored"  # all of them on one host
    KEPT = "kept"  # some stay on their host, because they cannot be stored
    LATE = "late"  # the job is over, and they are not stored yet
