"""The word, colour and icon of each state, defined once for all pages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from django.utils.translation import get_language, gettext, gettext_noop

from agents.models import GpuState, HostStatus
from jobs.rules.lifecycle.states import FlagName, JobState, ReplicaState, RunPhase
from jobs.rules.tuning.trials import TrialState


@dataclass(frozen=True, slots=True)
class Badge:
    """`tone` is a colour class, `icon` a symbol of static/icons.svg, `value` the state's name in the database.

    `english` is the word for it. `word` is the same in the language of the page.
    """

    value: str
    english: str
    tone: str
    icon: str

    @property
    def word(self) -> str:
        return _in_language(self.english, get_language())


@lru_cache(maxsize=1024)
def _in_language(english: str, _language: str | None) -> str:
    """The language is the present one, and named so that each has its own word. A page shows a thousand badges."""
    return gettext(english)


def _table(*rows: tuple[str, str, str, str]) -> dict[str, Badge]:
    return {row[0]: Badge(*row) for row in rows}


JOB = _table(
    (JobState.QUEUED, gettext_noop("Queued"), "wait", "hourglass"),
    (JobState.PENDING, gettext_noop("Pending"), "busy", "ring"),
    (JobState.RUNNING, gettext_noop("Running"), "live", "play"),
    (JobState.CANCELLING, gettext_noop("Cancelling"), "warn", "stop"),
    (JobState.SUCCEEDED, gettext_noop("Succeeded"), "good", "tick"),
    (JobState.FAILED, gettext_noop("Failed"), "bad", "cross"),
    (JobState.CANCELLED, gettext_noop("Cancelled"), "still", "slash"),
)

REPLICA = _table(
    (ReplicaState.WAITING, gettext_noop("Waiting"), "wait", "hourglass"),
    (ReplicaState.STARTING, gettext_noop("Starting"), "busy", "ring"),
    (ReplicaState.RUNNING, gettext_noop("Running"), "live", "play"),
    (ReplicaState.FINISHED, gettext_noop("Finished"), "good", "tick"),
    (ReplicaState.STOPPING, gettext_noop("Stopping"), "warn", "stop"),
    (ReplicaState.STOPPED, gettext_noop("Stopped"), "still", "slash"),
    (ReplicaState.FAILED, gettext_noop("Failed"), "bad", "cross"),
)

TRIAL = _table(
    (TrialState.REQUESTED, gettext_noop("Requested"), "wait", "hourglass"),
    (TrialState.ACTIVE, gettext_noop("Active"), "live", "play"),
    (TrialState.STOPPING, gettext_noop("Stopping"), "warn", "stop"),
    (TrialState.SUCCEEDED, gettext_noop("Succeeded"), "good", "tick"),
    (TrialState.INFEASIBLE, gettext_noop("Infeasible"), "bad", "cross"),
)

HOST = _table(
    (HostStatus.NEW, gettext_noop("Key to be accepted"), "warn", "key"),
    (HostStatus.CHECKING, gettext_noop("Being checked"), "busy", "ring"),
    (HostStatus.UP, gettext_noop("Up"), "good", "tick"),
    (HostStatus.UNREACHABLE, gettext_noop("Unreachable"), "bad", "unplugged"),
    (HostStatus.AUTH_FAILED, gettext_noop("Login refused"), "bad", "key"),
    (HostStatus.BLOCKED, gettext_noop("Host key changed"), "bad", "key"),
    (HostStatus.UNUSABLE, gettext_noop("Not usable"), "bad", "cross"),
    (HostStatus.MISBEHAVING, gettext_noop("Disconnected"), "bad", "unplugged"),
)

# GPUs that no job may use: quarantined ones, and those that are not yet known to be free.
GPU = _table(
    (GpuState.QUARANTINED, gettext_noop("Quarantined"), "bad", "stop"),
    (GpuState.CLEANING, gettext_noop("Being verified"), "busy", "ring"),
)
GPU_FORGOTTEN = Badge(
    "forgotten", gettext_noop("Held by a run that a restored backup has forgotten"), "bad", "stop"
)
GPU_CLEANING = Badge("cleaning", gettext_noop("Cleaning"), "busy", "ring")

UNREACHABLE = Badge("UNREACHABLE", gettext_noop("Unreachable"), "warn", "unplugged")
RETIRED = Badge("retired", gettext_noop("Removed"), "still", "slash")
CORDONED = Badge("cordoned", gettext_noop("Takes no new jobs"), "still", "stop")

# The from_state and to_state of a transition hold states of jobs or replicas, phases of runs, flags, or a word of their
# own.
_ANY = JOB | REPLICA
_PHASES = {phase.value: phase.value for phase in RunPhase}


def word(state: str) -> str:
    """Return the word for a state in a transition, whatever its subject is."""
    known = _ANY.get(state)
    if known is None and state in FlagName.__members__:
        return flag_word(state)
    return known.word if known else _PHASES.get(state, state.lower().replace("_", " "))


def flag_word(name: str) -> str:
    """The word for a flag. One that a later version has is shown as it is."""
    return gettext(name.capitalize()) if name in FlagName.__members__ else name
