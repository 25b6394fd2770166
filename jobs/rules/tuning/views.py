"""What is true about a tuning job now, frozen: everything that `decide` may use; and what it decides.

jobs/tuning/snapshot.py makes the views from rows, and jobs/tuning/advance.py writes the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from jobs.rules.lifecycle.states import JobState
from jobs.rules.tuning.space import Value
from jobs.rules.tuning.study import StudySpec
from jobs.rules.tuning.trials import Ending, Measurement, TrialState


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decided end. `code`: gRPC's, 0 for none."""

    state: JobState
    code: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class TrialView:
    """One trial and its job. `cancelled_by`: the person who cancelled the job. `timeout_s`: that of the job.
    `deleted`: the job, with what its program reported. `whole`: all of that has arrived. `final`: of a trial that is
    over. `no_place`: it waited for capacity for as long as its document allows."""

    number: int
    state: TrialState
    job: JobState
    drawn: bool = True
    parameters: Mapping[str, Value] = field(default_factory=dict)
    error: str = ""
    cancelled_by: str = ""
    ending: Ending = Ending.OWN
    no_place: bool = False
    timeout_s: float = 0.0
    deleted: bool = False
    whole: bool = True
    measured: tuple[Measurement, ...] = ()
    seen: tuple[str, ...] = ()
    final: Measurement | None = None
    reason: str = ""
    stopped_early: str = ""
    job_started_at: datetime | None = None
    job_ended_at: datetime | None = None
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TuningView:
    """`points`: how many the space has; None: without end. `max_failed`: 0 leaves it to `failed_trials.py`."""

    study: StudySpec
    state: JobState
    max_trials: int
    parallel: int
    max_failed: int
    points: int | None
    trials: tuple[TrialView, ...]
    cancel_requested: bool = False
    outcome: Outcome | None = None
    started_at: datetime | None = None
    # The unit of what a study waits after faults of hosts (`lost_trials.py`).
    retry_wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a study begins no trials although it might: hosts failed under so many in a row, of which the last is trial
    `last`. `trying`: trials that began since, and show whether hosts work again."""

    lost: int
    last: int
    reason: str
    until: datetime | None
    trying: tuple[int, ...] = ()


@dataclass(slots=True)
class TrialChange:
    """What becomes of a trial. `measured`: of one that is over, all that it measured."""

    state: TrialState
    final: Measurement | None = None
    measured: tuple[Measurement, ...] = ()
    reason: str = ""
    ending: Ending = Ending.OWN
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(slots=True)
class TuningPlan:
    """`cancel`: trials whose jobs are cancelled, with the reason that their jobs get. `requested`: numbers of new
    trials. `awaited`: trials that have ended and have long been waiting for the rest of their metrics. `pause`: why
    fewer are requested than may run at once.
    `look_again_s`: when a bound in time may be reached."""

    state: JobState
    trials: dict[int, TrialChange] = field(default_factory=dict)
    cancel: dict[int, str] = field(default_factory=dict)
    requested: tuple[int, ...] = ()
    awaited: tuple[int, ...] = ()
    pause: Pause | None = None
    outcome: Outcome | None = None
    started_at: datetime | None = None
    look_again_s: float | None = None
