"""What becomes of a trial when its job moves: it is active, it succeeds with a measurement, or it is infeasible."""

from __future__ import annotations

from datetime import datetime, timedelta

from agents.infra.texts import join, said
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.list_text import list_text
from jobs.rules.time_text import time_text
from jobs.rules.tuning.measurements import final_measurement
from jobs.rules.tuning.study import StudySpec
from jobs.rules.tuning.trials import FINISHED, Ending, TrialState
from jobs.rules.tuning.views import TrialChange, TrialView

NEVER_DRAWN = said("The study ended before its parameters were drawn.")
DELETED = said("Its job was deleted before its measurements were looked at.")
# How long a cancelled study waits for the rest of what its trials reported.
PATIENCE = timedelta(minutes=1)


def moved(trial: TrialView, study: StudySpec, now: datetime, cancelled: bool = False) -> TrialChange | None:
    """None: nothing has changed. `cancelled`: the study."""
    if trial.state in FINISHED:
        return None
    if trial.job in TERMINAL and not _is_awaited(trial, now, cancelled):
        return _ended(trial, study, now)
    state = _live(trial)
    started_at = trial.started_at or trial.job_started_at
    if state is trial.state and started_at == trial.started_at:
        return None
    return TrialChange(state, started_at=started_at)


def counts_as_failed(trial: TrialView) -> bool:
    """A trial that is over and failed: by its program, and by nobody's wish. Those that hosts failed under are not
    asked about."""
    return trial.state is TrialState.INFEASIBLE and trial.job is JobState.FAILED


def _live(trial: TrialView) -> TrialState:
    if trial.stopped_early:
        return TrialState.STOPPING
    return TrialState.ACTIVE if trial.drawn else TrialState.REQUESTED


def _ended(trial: TrialView, study: StudySpec, now: datetime) -> TrialChange:
    ended_at = trial.job_ended_at or now
    started_at = trial.started_at or trial.job_started_at
    final = None if _is_lost(trial) else final_measurement(study, trial.measured)
    change = TrialChange(
        TrialState.SUCCEEDED,
        final,
        trial.measured,
        ending=trial.ending,
        started_at=started_at,
        ended_at=ended_at,
    )
    if final is None:
        change.state, change.reason = TrialState.INFEASIBLE, _why_infeasible(trial, study)
    return change


def _is_awaited(trial: TrialView, now: datetime, cancelled: bool) -> bool:
    """Whether more of its measurements may come, and somebody wants them."""
    if trial.whole or trial.deleted or _is_lost(trial):
        return False
    ended_at = trial.job_ended_at
    return not (cancelled and ended_at is not None and now >= ended_at + PATIENCE)


def _is_lost(trial: TrialView) -> bool:
    """Whether its measurements count for nothing: the job failed, or a person cancelled it."""
    return trial.job is JobState.FAILED or _is_cancelled(trial)


def _is_cancelled(trial: TrialView) -> bool:
    by_rule = trial.stopped_early or trial.ending is Ending.TIMEOUT
    return trial.job is JobState.CANCELLED and not by_rule


def _why_infeasible(trial: TrialView, study: StudySpec) -> str:
    if trial.job is JobState.FAILED:
        return trial.error or said("Its job failed.")
    if not trial.drawn:
        return NEVER_DRAWN
    if _is_cancelled(trial):
        if trial.cancelled_by:
            return said("Cancelled by {person}.", person=trial.cancelled_by)
        return trial.error or said("Cancelled.")
    if trial.deleted:
        return DELETED
    why = _why_silent(trial, study)
    if trial.ending is not Ending.TIMEOUT:
        return why
    return join(" ", [said("It reached its timeout of {timeout}.", timeout=time_text(trial.timeout_s)), why])


def _why_silent(trial: TrialView, study: StudySpec) -> str:
    names = list_text([metric.name for metric in study.objectives])
    if not trial.seen:
        return said(
            "Its program reported no measurement of {metrics}, and none of anything else.", metrics=names
        )
    return said(
        "Its program reported no measurement of {metrics}; seen: {seen}.",
        metrics=names,
        seen=list_text(sorted(trial.seen)),
    )
