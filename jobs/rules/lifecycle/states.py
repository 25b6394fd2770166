"""The states of jobs, replicas and runs, and every legal move between them.

This file says which state may follow which; `decide.py` says *when* a state follows.

There are three state machines of two kinds.

A **run** belongs to its host. Its phases are facts: the host reports them, in one order, and the console may miss some
(CREATED, then CLOSED, when a program was quicker than a frame). A phase only ever grows.

A **replica** and a **job** belong to the console. Their states follow from the phases of all runs together, and it does
not matter by which path these were reached: facts may come late, doubled or all at once. That is why the tables below
have edges that skip states (`PENDING` to `SUCCEEDED`: the primary was done before a slow peer was up).

A job has three kinds of state. Waiting: `QUEUED`. Placed: `PENDING` until all replicas are up, then `RUNNING` for as
long as they are not all over, restarts included. Terminal: `SUCCEEDED`, `FAILED`, `CANCELLED`, of which a job reaches
exactly one and never leaves it. `CANCELLING` promises that the job will be `CANCELLED`; nothing leads back from it.

The end of a job is *decided* before it is *reached*: the outcome is written as soon as it is known, and the state
becomes terminal when every run on a host that answers is proved closed. "Run the whole job again" is decided in the
same way, and reached by going back to `QUEUED` once all runs are closed, without exception: a replica that may still
live on a host that does not answer must not run beside its successor.

What is true *beside* a state is a flag, never a state: when a host does not answer, its runs are unreachable, which
says nothing about whether they still run.

Google's `EXPIRED`, `PAUSED`, `UPDATING` and `PARTIALLY_SUCCEEDED` are not used: clients poll some of them for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class JobState(StrEnum):
    QUEUED = "QUEUED"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"


class ReplicaState(StrEnum):
    WAITING = "WAITING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


class RunPhase(StrEnum):
    """As on the wire, plus `created`: the row exists, the host has reported nothing yet."""

    CREATED = "created"
    CLAIMED = "claimed"
    RUNNING = "running"
    ENDED = "ended"
    CLOSED = "closed"

    @property
    def rank(self) -> int:
        """Phases only grow: a fact with a lower rank than the known phase is an old fact."""
        return _PHASES.index(self)

    @property
    def over(self) -> bool:
        """The main process has ended; other processes of the run may still be ending."""
        return self in (RunPhase.ENDED, RunPhase.CLOSED)


class FlagName(StrEnum):
    """What may be true beside the state of a job."""

    UNREACHABLE = "UNREACHABLE"  # a host of the job does not answer: nothing is known, nothing is freed
    STOPPING = "STOPPING"  # the end, or another attempt, is decided; runs are being stopped
    CLEANING = (
        "CLEANING"  # a main process has ended, its other processes or its GPUs are not yet proved clean
    )
    STUCK = "STUCK"  # processes survived the kill (in uninterruptible sleep, or of another user)
    RESTARTING = "RESTARTING"  # a replica was lost and is started again under its name
    MAINTENANCE = "MAINTENANCE"  # a host of the job is drained: replicas move, or wait for capacity elsewhere
    STALLED = "STALLED"  # a replica runs, but has printed nothing and used nothing for long
    IDLE = "IDLE"  # all GPUs of the job have been at 0 % for as long as the project's rule says
    UNCONNECTED = (
        "UNCONNECTED"  # its programs have not connected to each other: each may train a model of its own
    )


_PHASES = tuple(RunPhase)

TERMINAL: frozenset[JobState] = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})

_Q, _P, _R, _S, _F, _C, _X = JobState
JOB_MOVES: Mapping[JobState, Mapping[JobState, str]] = MappingProxyType(
    {
        _Q: {
            _P: "every replica has a place",
            _Q: "waited too long for capacity, tried again",
            _F: "no capacity, and no try left",
            _C: "cancel, or timeout, while an old run is not yet closed",
            _X: "cancel, or timeout",
        },
        _P: {
            _R: "all replicas are up",
            _S: "the primary exited 0",
            _F: "a permanent error, or no retry left",
            _Q: "the whole job again",
            _C: "cancel, or timeout",
            _X: "cancel, and nothing was running",
        },
        _R: {
            _S: "the primary exited 0",
            _F: "a permanent error, or no retry left",
            _Q: "the whole job again",
            _C: "cancel, or timeout",
            _X: "cancel, and everything was over",
        },
        _C: {_X: "everything is stopped"},
        _S: {},
        _F: {},
        _X: {},
    }
)

_W, _ST, _RU, _FI, _SG, _SD, _FA = ReplicaState
REPLICA_MOVES: Mapping[ReplicaState, frozenset[ReplicaState]] = MappingProxyType(
    {
        # Facts may arrive all at once, so any later state may follow STARTING.
        _W: frozenset({_ST, _RU, _FI, _SG, _SD, _FA}),
        _ST: frozenset({_ST, _RU, _FI, _SG, _SD, _FA, _W}),
        # A change to STARTING (also from STARTING) is a restart: the same replica, a new run.
        _RU: frozenset({_ST, _FI, _SG, _SD, _FA, _W}),
        _SG: frozenset({_SD, _FI, _FA, _ST, _W}),
        # A replica that is over starts again only when all are restarted together; WAITING is the next attempt.
        _FI: frozenset({_ST, _W}),
        _SD: frozenset({_ST, _W}),
        _FA: frozenset({_ST, _W}),
    }
)


class IllegalMove(Exception):
    """A state change that is not in the tables. This is a bug of Trainyard; nothing was changed."""


def legal(before: JobState | ReplicaState, after: JobState | ReplicaState) -> bool:
    """May `after` follow `before`?"""
    if isinstance(before, JobState) and isinstance(after, JobState):
        return after in JOB_MOVES[before]
    if isinstance(before, ReplicaState) and isinstance(after, ReplicaState):
        return after in REPLICA_MOVES[before]
    return False


def check(before: JobState | ReplicaState, after: JobState | ReplicaState) -> None:
    if not legal(before, after):
        raise IllegalMove(f"{type(before).__name__}: {before} is never followed by {after}.")


def wire_name(state: JobState) -> str:
    """Vertex's name: JOB_STATE_RUNNING."""
    return f"JOB_STATE_{state}"


def drawing() -> str:
    """The life of a job as a Mermaid diagram, made from the table. jobs/README.md shows it; a test keeps it current."""
    lines = ["stateDiagram-v2", "    [*] --> QUEUED: submitted"]
    for before, moves in JOB_MOVES.items():
        lines += [f"    {before} --> {after}: {why}" for after, why in moves.items()]
    lines += [f"    {state} --> [*]" for state in JobState if state in TERMINAL]
    return "\n".join(lines)
