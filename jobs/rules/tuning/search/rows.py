"""What a suggestion is made from, the rows of a study, and what it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from jobs.rules.tuning.space import Value, key
from jobs.rules.tuning.trials import RUNNING, Trial, by_number


@dataclass(frozen=True)
class StudyRows:
    """`trials` of the study, and of the earlier studies that it continues (`prior`). Their order does not matter."""

    trials: tuple[Trial, ...]
    earlier: tuple[tuple[Trial, ...], ...] = ()

    @cached_property
    def ended(self) -> list[Trial]:
        """The trials that say something about their parameters."""
        return _ended(self.trials)

    @cached_property
    def prior(self) -> list[list[Trial]]:
        """The same of the earlier studies."""
        return [_ended(trials) for trials in self.earlier]

    @cached_property
    def running(self) -> list[Trial]:
        """The trials that have parameters and no result yet."""
        return by_number([trial for trial in self.trials if trial.state in RUNNING and trial.parameters])

    @cached_property
    def to_try_again(self) -> Trial | None:
        """The first trial that hosts failed under whose parameters nobody has tried since."""
        lost = [trial for trial in by_number(self.trials) if trial.again and trial.parameters]
        if not lost:
            return None
        others = {key(trial.parameters) for trial in self.trials if trial.parameters and not trial.again}
        return next((trial for trial in lost if key(trial.parameters) not in others), None)

    @cached_property
    def tried(self) -> list[Mapping[str, Value]]:
        """All points that were given out, those of cancelled trials too."""
        return [trial.parameters for trial in by_number(self.trials) if trial.parameters]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the model expected of a point: the metric's value, one deviation to both sides, the chance of a new best."""

    value: float
    low: float
    high: float
    chance: float


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The parameters of one trial, in the order of the study."""

    parameters: Mapping[str, Value]
    expected: Expected | None = None
    # What a sampler of Optuna notes with the trial.
    memory: Mapping[str, object] | None = None


def _ended(trials: tuple[Trial, ...]) -> list[Trial]:
    return by_number([trial for trial in trials if (trial.measured or trial.failed) and trial.parameters])
