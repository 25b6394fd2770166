"""What should be, as a value. `decide` returns it; advance.py applies it in one transaction, if the version still fits.

Whatever is None is to stay as it is. Applying a plan and deciding again, with nothing new known, gives an empty plan.
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

    `counts`: against the replica's restarts. One that only makes room for a move of another replica does not.
    """

    replica: str
    after: str
    cause: str
    counts: bool = True


@dataclass(frozen=True, slots=True)
class StartHeldRun:
    """The held run of a replica may start now: the run `after` that it follows is closed. Its claims are there."""

    replica: str
    run: str
    after: str
    cause: str
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """A run that should be over: TERM, then after the grace everything of it is killed."""

    run: str
    grace_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class UnprovedRun:
    """A run beside which its job ends without proof: its host has been silent `since` then."""

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

    `next_attempt`: the attempt is over; attempt + 1, every replica WAITING with 0 restarts, `outcome` cleared, and the
    job is the scheduler's again. `flags`, when not None, replaces all flags. `due_at` is when to look again even if
    nothing happens; it replaces the old one when `reschedule` is set, and None then means never.
    """

    state: JobState | None = None
    cause: str = ""
    actor: str = TRAINYARD
    outcome: Outcome | None = None
    replica_states: Mapping[str, ReplicaState] = field(default_factory=dict)
    restart: tuple[Restart, ...] = ()
    take: tuple[StartHeldRun, ...] = ()
    stop: tuple[Stop, ...] = ()
    left: tuple[UnprovedRun, ...] = ()
    next_attempt: bool = False
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
