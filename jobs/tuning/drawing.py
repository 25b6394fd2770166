"""Drawing the parameters of a trial whose job is about to get its place.

The suggestion follows from the rows and the seed alone, and it is committed before any order is sent: a trial never
changes its parameters, whatever is restarted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from datetime import datetime

from django.db import transaction
from django.db.models import F
from django.utils.module_loading import import_string

from agents.infra.sql import Parameter, PartialModel, SelectStatement, UpdateStatement
from jobs.lifecycle import snapshot as of_job
from jobs.models import Job, Trial, TuningJob
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.spec.custom_job import to_document
from jobs.rules.tuning.arguments import with_arguments
from jobs.rules.tuning.search.rows import Suggestion
from jobs.rules.tuning.study import StudySpec
from jobs.rules.tuning.trials import FINISHED, TrialState
from jobs.tuning import prior_studies, sampler_memory, snapshot
from jobs.wake import announce, hints

_job = UpdateStatement(
    lambda: Job.every.filter(pk=Parameter("job")),
    "spec",
    "updated_at",
    undrawn=False,
    version=F("version") + 1,
)
_trial = UpdateStatement(
    lambda: Trial.objects.filter(pk=Parameter("trial")),
    "parameters",
    "why",
    "sampler_sealed",
    state=TrialState.ACTIVE,
)

_TUNING_JOB = PartialModel(TuningJob)
_locked = SelectStatement(
    lambda: (
        TuningJob.every.select_for_update(no_key=True, of=("self",))
        .filter(pk=Parameter("study"), outcome="", cancel_requested_at=None)
        .exclude(state__in=TERMINAL)
        .order_by()
        .values_list(*_TUNING_JOB.names)
    )
)
_JOB = PartialModel(Job, only=("id", "spec", "machine_types", "state", "undrawn", "cancel_requested_at"))
_locked_jobs = SelectStatement(
    lambda: (
        Job.every.select_for_update(no_key=True)
        .filter(pk__among=Parameter("jobs"))
        .order_by("pk")
        .values_list(*_JOB.names)
    )
)
_wanted = SelectStatement(
    lambda: (
        Trial.objects.filter(tuning_job=Parameter("study"), ended_at=None, wanted_at__isnull=False)
        .filter(job__state=JobState.QUEUED, job__undrawn=True, job__cancel_requested_at=None)
        .filter(parameters__isnull=True)
        .order_by()
        .values_list("pk")[:1]
    )
)

# So long the first of several trials waits for the others.
DRAW_FOR_S = 0.1


def draw_next(pk: int, now: datetime, known: Iterable[Trial] = ()) -> tuple[list[Trial], bool]:
    """Draw the parameters of trials that want them, the lowest number first, as many as DRAW_FOR_S allows. Returns
    these, and whether others want theirs. The last one is without parameters when there is no point left: its job must
    give up its place. `known`: trials that the caller has read; those that were over are not read again.

    Each is drawn as if those before it had been committed, so nothing depends on how many are drawn at once.
    """
    if not _wanted(study=pk):
        return [], False  # without reading all trials of the study
    with transaction.atomic():
        tuning_job = _lock(pk)
        if tuning_job is None:
            return [], False
        rows = snapshot.trials_of(tuning_job, known)
        wanted = [each for each in rows if is_wanted(each)]
        if not wanted:
            return [], False
        study = snapshot.study_of(tuning_job)
        drawn = _write(tuning_job, study, _suggested(tuning_job, study, rows, wanted), now)
        return drawn, len(drawn) < len(wanted)


def _lock(pk: int) -> TuningJob | None:
    """None: it is over, or ends."""
    return next((_TUNING_JOB.build(row) for row in _locked(study=pk)), None)


def is_wanted(trial: Trial) -> bool:
    """Whether there is a place for it, and only its parameters are missing."""
    if trial.state in FINISHED or trial.parameters is not None or trial.wanted_at is None:
        return False
    job = trial.job
    return job.state == JobState.QUEUED and job.undrawn and job.cancel_requested_at is None


def _suggested(
    tuning_job: TuningJob, study: StudySpec, rows: Sequence[Trial], wanted: Sequence[Trial]
) -> list[tuple[Trial, Suggestion | None]]:
    """The first of these trials, each with its suggestion. The last has none if no point is left."""
    # By name: it imports numpy, which costs a process 22 MB and 0.15 s, and most processes draw nothing.
    suggest = import_string("jobs.rules.tuning.search.suggest.suggest")
    until = time.monotonic() + DRAW_FOR_S
    base = snapshot.study_rows(rows, prior_studies.trials_of(tuning_job) if study.prior else ())
    known = {each.number: each for each in base.trials}
    found: list[tuple[Trial, Suggestion | None]] = []
    for trial in wanted:
        if found and time.monotonic() >= until:
            break
        suggested = suggest(study, replace(base, trials=tuple(known.values())), trial.number, tuning_job.seed)
        found.append((trial, suggested))
        if suggested is None:
            break
        known[trial.number] = replace(
            known[trial.number],
            state=TrialState.ACTIVE,
            parameters=dict(suggested.parameters),
            memory=suggested.memory,
        )
    return found


def _write(
    tuning_job: TuningJob,
    study: StudySpec,
    suggested: Sequence[tuple[Trial, Suggestion | None]],
    now: datetime,
) -> list[Trial]:
    rows = _locked_jobs(jobs=[trial.job_id for trial, _ in suggested])
    locked = {job.pk: job for job in map(_JOB.build, rows)}
    written = []
    for trial, suggestion in suggested:
        job = locked[trial.job_id]
        if job.state != JobState.QUEUED or job.cancel_requested_at is not None or not job.undrawn:
            # It is cancelled meanwhile. Those behind it were drawn as if it ran, so they are drawn again.
            break
        written.append(trial)
        if suggestion is not None:
            _write_one(study, trial, job, suggestion, now)
    if written:
        hints.schedule()
        announce.hint(f"tuning:{tuning_job.pk}")
    return written


def _write_one(study: StudySpec, trial: Trial, job: Job, suggestion: Suggestion, now: datetime) -> None:
    trial.parameters = point = dict(suggestion.parameters)
    spec = with_arguments(of_job.spec_of(job), point, study.parameters)
    _job(job=job.pk, spec=to_document(spec), updated_at=now)
    why = suggestion.expected and asdict(suggestion.expected)
    memory = sampler_memory.sealed(suggestion.memory)
    _trial(trial=trial.pk, parameters=point, why=why, sampler_sealed=memory)
