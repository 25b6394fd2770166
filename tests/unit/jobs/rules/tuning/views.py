"""Views of tuning jobs for tests: a study of one metric, and trials in the state that a word names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from jobs.rules.lifecycle.states import JobState
from jobs.rules.tuning.space import Kind, Parameter
from jobs.rules.tuning.study import Goal, Metric, StudySpec
from jobs.rules.tuning.trials import Measurement, TrialState
from jobs.rules.tuning.views import TrialView, TuningView

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
STUDY = StudySpec(
    metrics=(Metric("loss", Goal.MINIMIZE),), parameters=(Parameter("x", Kind.DOUBLE, 0.0, 1.0),)
)


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def measured(step: int, **values: float) -> Measurement:
    return Measurement(step, values, float(step))


def waiting(number: int) -> TrialView:
    return TrialView(number, TrialState.REQUESTED, JobState.QUEUED, drawn=False)


def running(number: int, *measurements: Measurement) -> TrialView:
    return TrialView(
        number,
        TrialState.ACTIVE,
        JobState.RUNNING,
        measured=measurements,
        job_started_at=at(number - 1),
        started_at=at(number - 1),
    )


def succeeded(number: int, loss: float = 0.5, minute: float | None = None) -> TrialView:
    return TrialView(
        number,
        TrialState.SUCCEEDED,
        JobState.SUCCEEDED,
        final=measured(1, loss=loss),
        job_ended_at=at(number if minute is None else minute),
    )


def failed(number: int, error: str = "exit 1") -> TrialView:
    return TrialView(
        number, TrialState.INFEASIBLE, JobState.FAILED, reason=error, error=error, job_ended_at=at(number)
    )


def silent(number: int) -> TrialView:
    """It succeeded and measured nothing."""
    return TrialView(
        number, TrialState.INFEASIBLE, JobState.SUCCEEDED, reason="nothing measured", job_ended_at=at(number)
    )


def cancelled(number: int) -> TrialView:
    return TrialView(
        number, TrialState.INFEASIBLE, JobState.CANCELLED, cancelled_by="ann", job_ended_at=at(number)
    )


def tuning(*trials: TrialView, **others: object) -> TuningView:
    given = {
        "study": STUDY,
        "state": JobState.RUNNING if trials else JobState.QUEUED,
        "max_trials": 10,
        "parallel": 2,
        "max_failed": 0,
        "points": None,
        "started_at": NOW if trials else None,
        **others,
    }
    return TuningView(trials=trials, **given)  # type: ignore[arg-type]
