"""The word, colour and icon of each state, defined once for all pages."""

from __future__ import annotations

from dataclasses import dataclass

from agents.models import GpuState, HostStatus
from jobs.rules.lifecycle.states import JobState, ReplicaState, RunPhase


@dataclass(frozen=True, slots=True)
class Badge:
    """`tone` is a colour class, `icon` a symbol of static/icons.svg, `value` the state's name in the database."""

    value: str
    word: str
    tone: str
    icon: str


def _table(*rows: tuple[str, str, str, str]) -> dict[str, Badge]:
    return {row[0]: Badge(*row) for row in rows}


JOB = _table(
    (JobState.QUEUED, "Queued", "wait", "hourglass"),
    (JobState.PENDING, "Pending", "busy", "ring"),
    (JobState.RUNNING, "Running", "live", "play"),
    (JobState.CANCELLING, "Cancelling", "warn", "stop"),
    (JobState.SUCCEEDED, "Succeeded", "good", "tick"),
    (JobState.FAILED, "Failed", "bad", "cross"),
    (JobState.CANCELLED, "Cancelled", "still", "slash"),
)

REPLICA = _table(
    (ReplicaState.WAITING, "Waiting", "wait", "hourglass"),
    (ReplicaState.STARTING, "Starting", "busy", "ring"),
    (ReplicaState.RUNNING, "Running", "live", "play"),
    (ReplicaState.FINISHED, "Finished", "good", "tick"),
    (ReplicaState.STOPPING, "Stopping", "warn", "stop"),
    (ReplicaState.STOPPED, "Stopped", "still", "slash"),
    (ReplicaState.FAILED, "Failed", "bad", "cross"),
)

HOST = _table(
    (HostStatus.NEW, "Key to be accepted", "warn", "key"),
    (HostStatus.CHECKING, "Being checked", "busy", "ring"),
    (HostStatus.UP, "Up", "good", "tick"),
    (HostStatus.UNREACHABLE, "Unreachable", "bad", "unplugged"),
    (HostStatus.AUTH_FAILED, "Login refused", "bad", "key"),
    (HostStatus.BLOCKED, "Host key changed", "bad", "key"),
    (HostStatus.UNUSABLE, "Not usable", "bad", "cross"),
    (HostStatus.MISBEHAVING, "Disconnected", "bad", "unplugged"),
)

# GPUs that no job may use: quarantined ones, and those that are not yet known to be free.
GPU = _table(
    (GpuState.QUARANTINED, "Quarantined", "bad", "stop"),
    (GpuState.CLEANING, "Being verified", "busy", "ring"),
)
GPU_FORGOTTEN = Badge("forgotten", "Held by a run that a restored backup has forgotten", "bad", "stop")
GPU_CLEANING = Badge("cleaning", "Cleaning", "busy", "ring")

UNREACHABLE = Badge("UNREACHABLE", "Unreachable", "warn", "unplugged")
RETIRED = Badge("retired", "Removed", "still", "slash")
CORDONED = Badge("cordoned", "Takes no new jobs", "still", "stop")

# The from_state and to_state of a transition hold states of jobs or replicas, phases of runs, or a word of their own.
_ANY = JOB | REPLICA
_PHASES = {phase.value: phase.value for phase in RunPhase}


def word(state: str) -> str:
    """Return the word for a state in a transition, whatever its subject is."""
    known = _ANY.get(state)
    return known.word if known else _PHASES.get(state, state.lower().replace("_", " "))
