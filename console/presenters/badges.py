"""One word, one colour and one icon for each state, defined once."""

from __future__ import annotations

from dataclasses import dataclass

from agents.models import GpuState, HostStatus
from jobs.rules.lifecycle.states import JobState, ReplicaState, RunPhase


@dataclass(frozen=True, slots=True)
class Badge:
    """`tone` is a colour class, `icon` a symbol of static/icons.svg, `value` what the wire says."""

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
)

# A GPU that is kept out of use, or not yet proved clean.
GPU = _table(
    (GpuState.QUARANTINED, "Quarantined", "bad", "stop"),
    (GpuState.CLEANING, "Being verified", "busy", "ring"),
)
GPU_FORGOTTEN = Badge("forgotten", "Held by a run that a restored backup has forgotten", "bad", "stop")
GPU_CLEANING = Badge("cleaning", "Cleaning", "busy", "ring")

UNREACHABLE = Badge("UNREACHABLE", "Unreachable", "warn", "unplugged")
RETIRED = Badge("retired", "Removed", "still", "slash")
CORDONED = Badge("cordoned", "Takes no new jobs", "still", "stop")

# What stands in a transition's from and to: states of jobs and replicas, phases of runs, or a word of its own.
_ANY = JOB | REPLICA
_PHASES = {phase.value: phase.value for phase in RunPhase}


def word(state: str) -> str:
    """A state of whatever subject in a transition, for people."""
    known = _ANY.get(state)
    return known.word if known else _PHASES.get(state, state.lower().replace("_", " "))
