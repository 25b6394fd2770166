"""What is true about a job now, frozen: everything that `decide` may use, and nothing else.

snapshot.py makes these from rows. Times are aware datetimes of the console's clock unless a field says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from jobs.rules.lifecycle.states import FlagName, JobState, ReplicaState, RunPhase
from jobs.rules.spec.custom_job import CustomJobSpec


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was decided about the job; or about this attempt, when `state` is QUEUED: the whole job is run again.

    `code` is a gRPC code (0 for none), `message` the text of the job's error; for another attempt, why there is one.
    """

    state: JobState
    code: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Flag:
    """Something that is true beside the state, since when, and as text."""

    name: FlagName
    since: datetime
    text: str


@dataclass(frozen=True, slots=True)
class RunView:
    """One start of one replica, as far as its host has reported. `host` is the name of the host, for texts."""

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
    # When it was started, as its host's monotonic clock tells it. Unlike all other times, it is measured again when the
    # console has lost the time (JobView.clock_unsure_since), and then unknown until the host has answered.
    measured_start: datetime | None = None
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
    seconds: float | None = None  # how long it ran, by the host's monotonic clock
    log_missing: int = 0  # bytes of its log that the host has and we do not
    restart_at: datetime | None = None  # by our clock: until then the restart after it waits (retry_waits.py)
    # A held run has its claims on another host, but is not to be started yet: its replica moves there when the run that
    # it follows is closed. `held_why` says why the replica moves.
    held: bool = False
    held_why: str = ""
    # A host of its attempt is being prepared, and until then it does not start; and when that was over.
    preparing: bool = False
    prepared_at: datetime | None = None
    # A person declared its host gone: nothing starts there again.
    gone: bool = False
    # Why and until when its host is drained; empty when it is not.
    drain: str = ""
    gpus: bool = False
    # By our clock: when it was last sampled, when it last did anything, when it last used a GPU.
    sampled_at: datetime | None = None
    active_at: datetime | None = None
    gpu_active_at: datetime | None = None
    # Whether its programs were seen to have a connection to their peers; None where nobody looked.
    connected: bool | None = None


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

    `flags` and `due_at` are what the row holds now, so that a plan holds only what changes. `queued_at` is when the
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
    # Since when the job waits for quota, if it does, and how long this attempt has waited for quota before.
    quota_since: datetime | None = None
    quota_s: float = 0.0
    location: str = ""
    # The console does not know for sure how long before this an earlier moment was: its machine was restarted, and its
    # clock may have been set meanwhile.
    clock_unsure_since: datetime | None = None
    # How long hosts may take to start what was placed on them; None means for ever.
    start_limit_s: float | None = None
    # Why the job must leave its hosts and wait for others, as a whole sentence; empty when it need not. Leaving counts
    # against nothing.
    preempted: str = ""
    cancel_reason: str = ""
    stall_after_s: float = 0.0  # 0: not asked for; likewise below
    idle_after_s: float = 0.0
    unconnected_after_s: float = 0.0
    # The unit of the waits before restarts and retries (0: nothing waits), and when the next attempt may begin.
    retry_wait_s: float = 0.0
    rests_until: datetime | None = None

    def sure(self, since: datetime) -> datetime:
        """From when on a wait that began at `since` counts: never from before the console lost the time, so that a
        clock that was set ends nothing early."""
        return max(since, self.clock_unsure_since or since)

    @property
    def in_doubt(self) -> bool:
        """The job runs since before the console lost the time."""
        return self.started_at is not None and self.sure(self.started_at) != self.started_at
