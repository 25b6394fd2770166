"""A plan: what should be changed about a job, as a value. `decide` returns it; advance.py applies it in one
transaction, if the job's version is still the same.

What is None stays as it is. After a plan was applied, deciding again without new facts gives an empty plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from jobs.rules.lifecycle.history_kinds import HistoryKind
from jobs.rules.lifecycle.states import JobState, ReplicaState
from jobs.rules.lifecycle.views import Flag, Outcome

TRAINYARD = "trainyard"


@dataclass(frozen=True, slots=True)
class Restart:
    """A new run of a replica: same host, same claims (they move from run `after` to the new one), next number.

    `counts`: whether it counts as one of the replica's restarts. A restart because another replica moves does not.
    """

    replica: str
    after: str
    cause: str
    counts: bool = True


@dataclass(frozen=True, slots=True)
class RestartWait:
    """The restart after the closed run `after` waits until `at`. `cause`: for history, with the time."""

    after: str
    at: datetime
    cause: str


@dataclass(frozen=True, slots=True)
class StartHeldRun:
    """Start the held run of a replica: the run `after`, which it follows, is closed. The held run has its claims."""

    replica: str
    run: str
    after: str
    cause: str
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a run: TERM, and after the grace all its processes are killed."""

    run: str
    grace_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class UnprovedRun:
    """A run that may still live when its job ends: its host has been unreachable since `since`."""

    run: str
    since: datetime


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One line of history. `subject` is "job", "flag" or a replica's name. `host_at` is the time by the host's clock,
    where the host reported it.
    """

    kind: HistoryKind
    subject: str
    from_state: str
    to_state: str
    cause: str
    host_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The difference between what is and what should be.

    `wait`: restarts that wait. `take`: held runs that start. `left`: runs that may still live although the job ends.
    `next_attempt`: the attempt is over: attempt + 1, every replica WAITING with 0 restarts, `outcome` cleared, and the
    job belongs to the scheduler again, which offers it no place before `rests_until`; `reason` says so. `flags`, when
    not None, replaces all flags. `due_at` is when to decide again even if nothing happens; it replaces the old one when
    `reschedule` is set, and None then means never.
    """

    state: JobState | None = None
    cause: str = ""
    actor: str = TRAINYARD
    outcome: Outcome | None = None
    replica_states: Mapping[str, ReplicaState] = field(default_factory=dict)
    restart: tuple[Restart, ...] = ()
    wait: tuple[RestartWait, ...] = ()
    take: tuple[StartHeldRun, ...] = ()
    stop: tuple[Stop, ...] = ()
    left: tuple[UnprovedRun, ...] = ()
    next_attempt: bool = False
    rests_until: datetime | None = None
    reason: str = ""
    job_retries: int | None = None
    internal_tries: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    flags: tuple[Flag, ...] | None = None
    due_at: datetime | None = None
    reschedule: bool = False
    events: tuple[HistoryEvent, ...] = ()

    @property
    def empty(self) -> bool:
        return self == NOTHING


NOTHING = Plan()
