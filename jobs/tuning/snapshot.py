"""Rows of a tuning job to the views that the rules decide from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from django.conf import settings

from agents.infra.sql import Parameter, PartialModel, Row, SelectStatement
from jobs.models import Job, Trial, TuningJob
from jobs.rules.lifecycle.plan import TRAINYARD
from jobs.rules.lifecycle.retry import RESOURCE_EXHAUSTED
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.tuning.ended_trials import DELETED
from jobs.rules.tuning.measurements import final_measurement, thinned, with_averages
from jobs.rules.tuning.parse_study import parse_study
from jobs.rules.tuning.search.rows import StudyRows
from jobs.rules.tuning.study import StudySpec
from jobs.rules.tuning.trials import FINISHED, Ending, Measurement, TrialState
from jobs.rules.tuning.trials import Trial as TriedTrial
from jobs.rules.tuning.views import Outcome, TrialChange, TrialView, TuningView
from jobs.tuning import lost_jobs, measured, sampler_memory
from jobs.tuning.lost_jobs import LostJobs

# Without what is large and what no decision asks for.
_TRIAL = PartialModel(Trial, without=("measurements", "why", "shadow"))
_OVER = PartialModel(Trial, without=("measurements", "why", "wanted_at", "shadow"))
_JOB = PartialModel(
    Job,
    only=(
        *("id", "state", "undrawn", "started_at", "ended_at", "deleted_at", "error_code"),
        *("error_message", "cancel_requested_at", "cancel_requested_by", "timeout_s"),
    ),
)
_ENDED = PartialModel(Job, only=("id", "state", "started_at", "ended_at"))
_live = SelectStatement(
    lambda: (
        Trial.objects.filter(tuning_job=Parameter("study"), ended_at=None)
        .order_by()
        .values_list(*_TRIAL.names, *(f"job__{name}" for name in _JOB.names))
    )
)
_over = SelectStatement(
    lambda: (
        Trial.objects.filter(tuning_job=Parameter("study"), ended_at__isnull=False)
        .exclude(pk__among=Parameter("known"))
        .order_by()
        .values_list(*_OVER.names)
    )
)

# So many of the measurements of a trial are kept in its row when it is over.
MOST_MEASUREMENTS = 100


def study_of(tuning_job: TuningJob) -> StudySpec:
    return _parsed(json.dumps(tuning_job.study))


@lru_cache(maxsize=64)
def _parsed(study: str) -> StudySpec:
    return parse_study(json.loads(study))


def trials_of(tuning_job: TuningJob, known: Iterable[Trial] = ()) -> list[Trial]:
    """All of them, by number, with what decisions ask of their jobs: of a trial that is over only how its job ended,
    which never changes. So a study of thousands of trials costs little more than the few that run. Those of `known`
    that were over when they were read are not read again."""
    found = [trial for trial in known if trial.ended_at is not None]
    known_over = [trial.pk for trial in found]
    # These come first: one that ends between the two reads is not missing where nobody has locked the study.
    found += [_built(row) for row in _live(study=tuning_job.pk)]
    for row in _over(study=tuning_job.pk, known=known_over):
        found.append(_with_ended_job(_OVER.build(row)))
    return sorted(found, key=lambda each: each.number)


def _with_ended_job(trial: Trial) -> Trial:
    trial.job = _ENDED.build((trial.job_id, trial.job_state, trial.started_at, trial.ended_at))
    return trial


def _built(row: Row) -> Trial:
    trial = _TRIAL.build(row[: len(_TRIAL.names)])
    trial.job = _JOB.build(row[len(_TRIAL.names) :])
    return trial


def view_of(tuning_job: TuningJob, study: StudySpec, trials: Sequence[Trial]) -> TuningView:
    names = [metric.name for metric in study.metrics]
    over = [trial.job for trial in trials if trial.state not in FINISHED and trial.job.state in TERMINAL]
    seen, lost = measured.of_jobs(over, names), lost_jobs.of_jobs(over)
    cancelled = tuning_job.cancel_requested_at is not None
    outcome = None
    if tuning_job.outcome:
        outcome = Outcome(JobState(tuning_job.outcome), tuning_job.error_code or 0, tuning_job.error_message)
    return TuningView(
        study=study,
        state=JobState(tuning_job.state),
        max_trials=tuning_job.max_trials,
        parallel=tuning_job.parallel_trials,
        max_failed=tuning_job.max_failed_trials,
        points=study.points,
        trials=tuple(
            _over_trial(trial)
            if trial.state in FINISHED
            else _live_trial(trial, study, seen.get(trial.job_id, measured.NOTHING), lost, cancelled)
            for trial in trials
        ),
        cancel_requested=cancelled,
        outcome=outcome,
        started_at=tuning_job.started_at,
        retry_wait_s=settings.TRAINYARD.retry_wait_s,
    )


def _over_trial(trial: Trial) -> TrialView:
    return TrialView(
        number=trial.number,
        state=TrialState(trial.state),
        job=JobState(trial.job.state),
        drawn=trial.parameters is not None,
        parameters=trial.parameters or {},
        ending=Ending(trial.ending),
        no_place=trial.parameters is None,  # no other fault of hosts comes before a place
        final=read_measurement(trial.final),
        reason=trial.infeasible_reason,
        stopped_early=trial.stopped_early,
        job_started_at=trial.started_at,
        job_ended_at=trial.ended_at,
        started_at=trial.started_at,
    )


def _live_trial(
    trial: Trial, study: StudySpec, seen: measured.Measured, lost: LostJobs, cancelled: bool
) -> TrialView:
    """`seen`: what a trial has measured whose job is over. `cancelled`: the study."""
    job = trial.job
    names: tuple[str, ...] = ()
    # While the rest of its reports is awaited, nobody asks for their names.
    is_over = job.state in TERMINAL and (seen.whole or cancelled or job.deleted_at is not None)
    if is_over and final_measurement(study, seen.measurements) is None:
        names = measured.names_of(job)
    by_console = job.cancel_requested_by == TRAINYARD
    return TrialView(
        number=trial.number,
        state=TrialState(trial.state),
        job=JobState(job.state),
        drawn=trial.parameters is not None,
        parameters=trial.parameters or {},
        error=lost.causes.get(job.pk) or job.error_message,
        cancelled_by="" if by_console else job.cancel_requested_by,
        ending=_ending(job, lost),
        no_place=job.error_code == RESOURCE_EXHAUSTED,
        timeout_s=job.timeout_s,
        deleted=job.deleted_at is not None,
        whole=seen.whole,
        measured=seen.measurements,
        seen=names,
        final=read_measurement(trial.final),
        reason=trial.infeasible_reason,
        stopped_early=trial.stopped_early,
        job_started_at=job.started_at,
        job_ended_at=job.ended_at,
        started_at=trial.started_at,
    )


def _ending(job: Job, lost: LostJobs) -> Ending:
    if lost_jobs.is_lost(job) and job.pk not in lost.by_order:
        return Ending.HOSTS
    timed_out = job.state == JobState.CANCELLED and job.cancel_requested_at is None
    return Ending.TIMEOUT if timed_out else Ending.OWN


def read_measurement(kept: Mapping[str, Any] | None) -> Measurement | None:
    if kept is None:
        return None
    return Measurement(
        kept["step"],
        {name: float(value) for name, value in kept["metrics"].items()},
        kept["elapsed"],
        kept.get("average"),
    )


def kept_measurement(measurement: Measurement | None) -> dict[str, Any] | None:
    if measurement is None:
        return None
    metrics = {name: kept_number(value) for name, value in measurement.metrics.items()}
    found = {"step": measurement.step, "elapsed": measurement.elapsed_s, "metrics": metrics}
    return found if measurement.average is None else {**found, "average": measurement.average}


def read_measurements(rows: Sequence[Mapping[str, Any]] | None) -> tuple[Measurement, ...]:
    """Those of a trial that is over."""
    return tuple(filter(None, map(read_measurement, rows or ())))


def kept(study: StudySpec, change: TrialChange) -> list[dict[str, Any] | None]:
    """What is kept of the measurements of a trial that is over."""
    metric = study.objectives[0].name
    measured = change.measured
    if len(measured) > MOST_MEASUREMENTS:
        measured = tuple(with_averages(study, measured))
    found = thinned(measured, metric, change.final, MOST_MEASUREMENTS)
    return [kept_measurement(each) for each in found]


def kept_number(value: float) -> float | str:
    """As proto3 JSON writes it. JSON itself has no NaN and nothing without end."""
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def study_rows(trials: Sequence[Trial], earlier: tuple[tuple[TriedTrial, ...], ...] = ()) -> StudyRows:
    """What a search learns from. `earlier`: the trials of earlier studies."""
    return StudyRows(tuple(_remembered(trial) for trial in trials), earlier)


def _remembered(trial: Trial) -> TriedTrial:
    memory = sampler_memory.read(trial)
    found = tried(trial)
    return found if memory is None else replace(found, memory=memory)


def tried(trial: Trial, seen: tuple[Measurement, ...] = ()) -> TriedTrial:
    return TriedTrial(
        number=trial.number,
        state=TrialState(trial.state),
        parameters=trial.parameters or {},
        measurements=seen,
        final=read_measurement(trial.final),
        cancelled=_is_cancelled(trial),
        again=trial.ending == Ending.HOSTS,
        stopped_early=bool(trial.stopped_early),
        seconds=_seconds(trial),
    )


def _is_cancelled(trial: Trial) -> bool:
    """Whether a person ended it, or a fault of hosts, so that it says nothing about its parameters."""
    ending = Ending(trial.ending)
    by_rule = trial.stopped_early or ending is Ending.TIMEOUT
    by_hand = trial.job.state == JobState.CANCELLED and not by_rule
    return by_hand or ending.by_hosts or trial.infeasible_reason == DELETED


def _seconds(trial: Trial) -> float:
    if trial.started_at is None or trial.ended_at is None:
        return 0.0
    return max((trial.ended_at - trial.started_at).total_seconds(), 0.0)
