"""Drawing the parameters of a trial whose job is about to get its place.

The suggestion follows from the rows and the seed alone, and it is committed before any order is sent: a trial never
changes its parameters, whatever is restarted.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from django.db import transaction
from django.db.models import F
from django.utils.module_loading import import_string

from jobs.lifecycle import snapshot as of_job
from jobs.models import Job, Trial, TuningJob
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.spec.custom_job import to_document
from jobs.rules.tuning.arguments import with_arguments
from jobs.rules.tuning.search.rows import Suggestion
from jobs.rules.tuning.trials import TrialState
from jobs.tuning import prior_studies, sampler_memory, snapshot
from jobs.wake import announce, hints


def draw_next(pk: int, now: datetime) -> Trial | None:
    """Draw the parameters of one trial that wants them, the lowest number first. None: none does. Returns a trial
    without parameters when there is no point left: its job must give up its place."""
    with transaction.atomic():
        tuning_job = _lock(pk)
        if tuning_job is None:
            return None
        rows = snapshot.trials_of(tuning_job)
        trial = next((each for each in rows if _is_wanted(each)), None)
        return trial and _write(tuning_job, rows, trial, now)


def _lock(pk: int) -> TuningJob | None:
    """None: it is over, or ends."""
    rows = TuningJob.every.select_for_update(no_key=True, of=("self",))
    return rows.filter(pk=pk, outcome="", cancel_requested_at=None).exclude(state__in=TERMINAL).first()


def _is_wanted(trial: Trial) -> bool:
    return trial.wanted_at is not None and trial.parameters is None and trial.job.state == JobState.QUEUED


def _write(tuning_job: TuningJob, rows: list[Trial], trial: Trial, now: datetime) -> Trial | None:
    """None: the job is cancelled meanwhile."""
    study = snapshot.study_of(tuning_job)
    # By name: it imports numpy, which costs a process 22 MB and 0.15 s, and most processes draw nothing.
    suggest = import_string("jobs.rules.tuning.search.suggest.suggest")
    known = snapshot.study_rows(rows, prior_studies.trials_of(tuning_job) if study.prior else ())
    suggested: Suggestion | None = suggest(study, known, trial.number, tuning_job.seed)
    if suggested is None:
        return trial
    locked = Job.every.select_for_update(no_key=True, of=("self",)).get(pk=trial.job_id)
    if locked.state != JobState.QUEUED or locked.cancel_requested_at is not None or not locked.undrawn:
        return None
    trial.parameters = point = dict(suggested.parameters)
    spec = with_arguments(of_job.spec_of(locked), point, study.parameters)
    Job.every.filter(pk=locked.pk).update(
        spec=to_document(spec), undrawn=False, version=F("version") + 1, updated_at=now
    )
    Trial.objects.filter(pk=trial.pk).update(
        parameters=point,
        why=suggested.expected and asdict(suggested.expected),
        sampler=sampler_memory.sealed(suggested.memory),
        state=TrialState.ACTIVE,
    )
    hints.schedule()
    announce.hint(f"tuning:{tuning_job.pk}")
    return trial
