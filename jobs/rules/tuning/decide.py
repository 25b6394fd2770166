"""The decision about one tuning job: what becomes of its trials, whether new ones are asked for, and whether it ends.

Pure and total: any facts, in any order, twice. Its end is decided first (`outcome`), and reached when the job of every
trial is over: nothing runs under a study that is finished.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from agents.infra.texts import said
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.tuning import failed_trials, lost_trials
from jobs.rules.tuning.ended_trials import moved
from jobs.rules.tuning.study_end import Enough, is_enough
from jobs.rules.tuning.trials import FINISHED
from jobs.rules.tuning.views import Outcome, TrialView, TuningPlan, TuningView

CANCELLED = 1
SUCCEEDED = Outcome(JobState.SUCCEEDED)
STUDY_ENDED = said("The study has ended.")
# What a program reported is here some seconds after its end. Where that takes longer, people read why.
LATE = timedelta(minutes=1)


def decide(view: TuningView, now: datetime) -> TuningPlan:
    """Raises nothing for any view of a tuning job that is not terminal."""
    plan = TuningPlan(view.state, started_at=view.started_at)
    view = _with_moved_trials(view, plan, now)
    enough = is_enough(view, now)
    plan.look_again_s = enough.look_again_s
    plan.outcome = view.outcome or _outcome(view, enough)
    if plan.outcome is None:
        hopeless = _request(view, plan, now)
        goes_on = plan.requested or plan.pause or _live(view)
        plan.outcome = None if goes_on else hopeless or _end_of_all(view)
    plan.awaited = tuple(each.number for each in _live(view) if _is_late(each, now))
    _stop_early(view, plan)
    if plan.outcome is not None:
        _cancel(view, plan, enough)
    plan.state = _state(view, plan.outcome)
    if plan.state is JobState.RUNNING and plan.started_at is None:
        plan.started_at = min(
            (each.job_started_at for each in view.trials if each.job_started_at), default=now
        )
    return plan


def _with_moved_trials(view: TuningView, plan: TuningPlan, now: datetime) -> TuningView:
    """The view after what has become of its trials, which is noted in the plan."""
    trials: list[TrialView] = []
    goes_on = view.outcome is None and not view.cancel_requested
    for trial in view.trials:
        change = moved(trial, view.study, now, view.cancel_requested)
        if change is not None:
            if change.ending.by_hosts:
                others = [*trials, *view.trials[len(trials) + 1 :]]
                lost_trials.end_of(trial, change, others, goes_on)
            plan.trials[trial.number] = change
            trial = replace(
                trial,
                state=change.state,
                final=change.final,
                reason=change.reason or trial.reason,
                ending=change.ending if change.state in FINISHED else trial.ending,
            )
        trials.append(trial)
    return replace(view, trials=tuple(trials))


def _outcome(view: TuningView, enough: Enough) -> Outcome | None:
    """Why it ends although trials are left."""
    if view.cancel_requested:
        return Outcome(JobState.CANCELLED, CANCELLED, said("CANCELED"))
    if failed := failed_trials.too_many(view):
        return failed
    return SUCCEEDED if enough.enough else None


def _end_of_all(view: TuningView) -> Outcome:
    return failed_trials.all_infeasible(view) or SUCCEEDED


def _is_late(trial: TrialView, now: datetime) -> bool:
    """Its job ended a while ago, and the rest of what it reported is not here yet."""
    ended_at = trial.job_ended_at
    return trial.job in TERMINAL and ended_at is not None and now - ended_at >= LATE


def _live(view: TuningView) -> list[TrialView]:
    return [each for each in view.trials if each.state not in FINISHED]


def _request(view: TuningView, plan: TuningPlan, now: datetime) -> Outcome | None:
    """New trials. After several that hosts failed under, it waits, and one at a time begins. Returns the end of a study
    that is to have none because of its hosts, although it might."""
    numbers = _to_request(view)
    hopeless = lost_trials.hopeless(view) if numbers else None
    if hopeless is not None:
        return hopeless
    pause = lost_trials.pause_of(view) if numbers else None
    if pause is not None:
        numbers = numbers[: lost_trials.may_try(pause, view, now)]
        plan.pause = replace(pause, trying=pause.trying or numbers)
    plan.requested = numbers
    return None


def _to_request(view: TuningView) -> tuple[int, ...]:
    """The numbers of the trials that may begin: as many as may run at once, and no more than the space has points."""
    trials = lost_trials.counted(view.trials)
    left = view.max_trials - len(trials)
    if view.points is not None:
        # A trial that was cancelled before it had parameters took no point.
        left = min(left, view.points - sum(each.drawn or each.state not in FINISHED for each in trials))
    last = max((each.number for each in view.trials), default=0)
    free = min(view.parallel - len(_live(view)), left)
    return tuple(range(last + 1, last + 1 + max(free, 0)))


def _stop_early(view: TuningView, plan: TuningPlan) -> None:
    for trial in _live(view):
        if trial.stopped_early and trial.job not in (JobState.CANCELLING, *TERMINAL):
            plan.cancel[trial.number] = trial.stopped_early


def _cancel(view: TuningView, plan: TuningPlan, enough: Enough) -> None:
    """Which trials are cancelled at a decided end: those that have no parameters; and the running ones, unless the
    study may wait for them."""
    assert plan.outcome is not None
    waits = plan.outcome.state is JobState.SUCCEEDED and not enough.asap
    for trial in _live(view):
        if trial.job not in (JobState.CANCELLING, *TERMINAL) and not (waits and trial.drawn):
            plan.cancel[trial.number] = STUDY_ENDED


def _state(view: TuningView, outcome: Outcome | None) -> JobState:
    if outcome is not None:
        if not _live(view):
            return outcome.state
        if outcome.state is JobState.CANCELLED:
            return JobState.CANCELLING
    jobs = {each.job for each in view.trials}
    if view.state is JobState.RUNNING or jobs - {JobState.QUEUED, JobState.PENDING}:
        return JobState.RUNNING
    return JobState.PENDING if view.state is JobState.PENDING or JobState.PENDING in jobs else JobState.QUEUED
