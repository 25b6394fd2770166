"""Trials as frozen values: what they measured, and how their values compare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from jobs.rules.tuning.space import Value
from jobs.rules.tuning.study import Goal, Metric


class TrialState(StrEnum):
    """Vertex's states. REQUESTED: it has no parameters yet; they are drawn when its job is about to be placed."""

    REQUESTED = "REQUESTED"
    ACTIVE = "ACTIVE"
    STOPPING = "STOPPING"
    SUCCEEDED = "SUCCEEDED"
    INFEASIBLE = "INFEASIBLE"


class Ending(StrEnum):
    """How a trial came to its end, where the state of its job does not say it."""

    # Of its program, or because somebody cancelled it.
    OWN = ""
    TIMEOUT = "TIMEOUT"
    # Its job failed by a fault of hosts (`lost_trials.py`); its parameters are tried again by another trial.
    HOSTS = "HOSTS"
    # The same, and nobody tries them again.
    GIVEN_UP = "GIVEN_UP"

    @property
    def by_hosts(self) -> bool:
        return self in (Ending.HOSTS, Ending.GIVEN_UP)


FINISHED = frozenset({TrialState.SUCCEEDED, TrialState.INFEASIBLE})
RUNNING = frozenset({TrialState.ACTIVE, TrialState.STOPPING})


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a trial reported at one step. `elapsed_s`: since its start. `average`: of the first objective up to here,
    noted where not all measurements before it were kept."""

    step: int
    metrics: Mapping[str, float]
    elapsed_s: float = 0.0
    average: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """One row. `measurements` are sorted by step, then by elapsed time.

    `cancelled`: by hand, or with the study, or lost by a fault of hosts. It says nothing about its parameters, so no
    algorithm learns from it. `again`: of a lost one, that another trial is to try its parameters.
    `stopped_early`: by a rule; its final measurement is that of then. `seconds`: how long it ran, for one that ended.
    """

    number: int
    state: TrialState
    parameters: Mapping[str, Value] = field(default_factory=dict)
    measurements: tuple[Measurement, ...] = ()
    final: Measurement | None = None
    cancelled: bool = False
    again: bool = False
    stopped_early: bool = False
    seconds: float = 0.0
    # What a sampler of Optuna noted with it (`search/optuna_samplers.py`).
    memory: Mapping[str, object] | None = None

    @property
    def measured(self) -> bool:
        """It ended with a final measurement."""
        return self.state is TrialState.SUCCEEDED and self.final is not None

    @property
    def failed(self) -> bool:
        """It ended without a measurement, by a fault of its own."""
        return self.state is TrialState.INFEASIBLE and not self.cancelled

    def value(self, metric: str) -> float:
        """The final value of a metric; NaN where there is none."""
        return self.final.metrics.get(metric, math.nan) if self.final is not None else math.nan


def cost(metric: Metric, value: float) -> float:
    """The value as a number of which less is better. NaN and both infinities are worse than everything."""
    if not math.isfinite(value):
        return math.inf
    return value if metric.goal is Goal.MINIMIZE else -value


def by_number(trials: Sequence[Trial]) -> list[Trial]:
    """No result depends on the order in which rows were read."""
    return sorted(trials, key=lambda trial: trial.number)
