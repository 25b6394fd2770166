"""The trials of a study as files: those that the address of its page shows, in the same order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.utils import timezone

from console.presenters.studies import trial_rows
from console.presenters.studies.axes import axes_of
from console.presenters.studies.read_trials import read_trials
from console.presenters.studies.trial_rows import TrialRow
from jobs.models import TuningJob
from jobs.rules.tuning.study import StudySpec
from jobs.tuning import price, snapshot


def csv_of(tuning_job: TuningJob, query: Mapping[str, str]) -> str:
    study = snapshot.study_of(tuning_job)
    hours = price.used_hours(tuning_job, timezone.now())
    trials = trial_rows.with_expected(tuning_job, _asked(study, tuning_job, query))
    return trial_rows.as_csv(study, trials, hours)


def json_of(tuning_job: TuningJob, query: Mapping[str, str]) -> str:
    """A list of objects. Times and numbers are written as the REST API writes them."""
    study = snapshot.study_of(tuning_job)
    trials = trial_rows.with_expected(tuning_job, _asked(study, tuning_job, query))
    hours = price.used_hours(tuning_job, timezone.now())
    found = [_document(each, hours.get(each.number, 0)) for each in trials]
    return json.dumps(found, indent=1, ensure_ascii=False)


def _asked(study: StudySpec, tuning_job: TuningJob, query: Mapping[str, str]) -> Sequence[TrialRow]:
    trials = read_trials(tuning_job)
    axes = axes_of(study, trials, query)
    inside = axes.inside(trials)
    order = trial_rows.order_of(study, query)
    return trial_rows.in_order(study, inside, order, trial_rows.others_of(tuning_job, order))


def _document(trial: TrialRow, hours: float) -> dict[str, Any]:
    """What is not known is left out."""
    known = {
        "step": trial.step,
        "startTime": trial.started_at and trial.started_at.isoformat(),
        "endTime": trial.ended_at and trial.ended_at.isoformat(),
        "expected": dict(trial.why) or None,
        "infeasibleReason": str(trial.infeasible) or None,
        "stoppedEarly": str(trial.stopped_early) or None,
        "job": trial.job and str(trial.job),
    }
    return {
        "trial": trial.number,
        "state": trial.state,
        "parameters": dict(trial.parameters),
        "metrics": {name: snapshot.kept_number(value) for name, value in trial.values.items()},
        "gpuHours": hours,
        **{name: value for name, value in known.items() if value is not None},
    }
