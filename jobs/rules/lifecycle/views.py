"""What is now true about a job, frozen: everything that `decide` may look at, and nothing else.

snapshot.py makes these from rows. Times are aware datetimes of the console's clock unless a field says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from jobs.rules.lifecycle.states import FlagName, JobState, ReplicaState, RunPhase
from jobs.rules.spec.custom_job import CustomJobSpec


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was decided about the job, or about this attempt when `state` is QUEUED: the whole job again.

    `code` is a gRPC code (0 for none), `message` the text of the job's error; for another attempt, why there is one.
    """

    state: JobState
    code: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Flag:
    """Something true beside the state, since when, and in words."""

    name: FlagName
    since: datetime
    text: str


@dataclass(frozen=True, slots=True)
class RunView:
    """One start of one replica, as far as its host has told. `host` is the host's name, for words."""

    id: str
    replica: str
    attempt: int
    number: int
    host: str
    phase: RunPhase
    created_at: datetime
    started_at: datetime | None = None  # by the host's clock, as the three below
    ended_at: datetime | None = None
    closed_at: datetime | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    why: str = ""
    refusal: str = ""
    message: str = ""
    oom: bool | None = None
    stop_wanted_at: datetime | None = None
    stop_grace_s: float = 0.0
    unreachable_since: datetime | None = None
    survivors: int = 0
    # A place on another host, claimed and not yet to be started: its replica moves there when the run that it follows
    # is closed. `held_why` says why it moves.
    held: bool = False
    held_why: str = ""
    # Its host was declared gone by a person: nothing comes back there.
    gone: bool = False
    # Why and until when its host is being emptied; empty when it is not.
    drain: str = ""
    gpus: bool = False
    # By our clock: when it was looked at, did anything, used a GPU.
    sampled_at: datetime | None = None
    active_at: datetime | None = None
    gpu_active_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ReplicaView:
    name: str
    pool: int
    index: int
    state: ReplicaState
    restarts: int = 0

    @property
    def primary(self) -> bool:
        return self.pool == 0


@dataclass(frozen=True, slots=True)
class JobView:
    """A job with its replicas and the runs of its current attempt, and older runs that are not yet closed.

    `flags` and `due_at` are what the row holds now, so that a plan can say only what changes. `queued_at` is when the
    current attempt began to wait, where that is known.
    """

    id: str
    state: JobState
    version: int
    spec: CustomJobSpec
    attempt: int
    job_retries: int
    internal_tries: int
    created_at: datetime
    started_at: datetime | None
    cancel_requested_at: datetime | None
    cancel_requested_by: str
    outcome: Outcome | None
    replicas: tuple[ReplicaView, ...]
    runs: tuple[RunView, ...]
    flags: tuple[Flag, ...] = ()
    due_at: datetime | None = None
    queued_at: datetime | None = None
    # Since when it waits for quota, if it does, and how long this attempt has done so before.
    quota_since: datetime | None = None
    quota_s: float = 0.0
    location: str = ""
    # How long hosts have to start what was placed on them; None for ever.
    start_limit_s: float | None = None
    # Why the job must leave its hosts and wait for others, as a whole sentence; empty when it need not. It counts
    # against nothing.
    preempted: str = ""
    cancel_reason: str = ""
    stall_after_s: float = 0.0  # 0: nobody asked; so below
    idle_after_s: float = 0.0
