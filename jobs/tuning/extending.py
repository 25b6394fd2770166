"""A study gets more trials, while it runs or after its end.

The caller has checked that the person may do it, and owns the transaction.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from agents.infra.refusals import Refused
from agents.infra.texts import said
from jobs.models import TrainingPipeline, TuningJob
from jobs.preparations import brought
from jobs.projects import audit
from jobs.rules.lifecycle.states import TERMINAL
from jobs.rules.spec.parse import parse_custom_job
from jobs.rules.tuning.extension import TRIALS, Counts, extended, parse_extension, refusal
from jobs.scheduling import machine_types
from jobs.secrets import of_jobs, of_tuning_jobs
from jobs.tuning import snapshot, trials
from jobs.tuning.refused_trials import about_trials
from jobs.wake import announce, hints


def extend(pk: int, document: object, actor: str, now: datetime) -> TuningJob:
    """Raises InvalidDocument and Refused. A study that is over and goes on keeps its trials, its seed and the time of
    its start."""
    rows = TuningJob.every.select_for_update(no_key=True, of=("self",)).select_related("project", "owner")
    tuning_job = rows.get(pk=pk)
    if tuning_job.deleted_at is not None:
        raise Refused("name", said("The study was deleted, so it gets no more trials. Submit a new one."))
    asked = parse_extension(document, counts_of(tuning_job))
    view = snapshot.view_of(tuning_job, snapshot.study_of(tuning_job), snapshot.trials_of(tuning_job))
    if why := refusal(view, asked, now):
        raise Refused(TRIALS, why)
    _open_pipeline_again(tuning_job)
    columns: dict[str, object] = {
        "max_trials": asked.trials,
        "parallel_trials": asked.parallel,
        "max_failed_trials": asked.failed,
        "extended_at": now,
        "updated_at": now,
        "due_at": now,
    }
    if tuning_job.state in TERMINAL:
        _bring_secrets_again(tuning_job, now)
        columns |= {
            "state": extended(view, asked).state,
            "outcome": "",
            "ended_at": None,
            "error_code": None,
            "error_message": "",
            "cancel_requested_at": None,
            "cancel_requested_by": "",
        }
    TuningJob.every.filter(pk=pk).update(**columns)
    before = counts_of(tuning_job)
    project, subject = tuning_job.project, str(pk)
    audit.record(actor, "study.extend", "study", subject, asdict(before), asdict(asked), now, project)
    tuning_job.refresh_from_db()
    hints.tuning([pk])
    announce.hints([f"tuning:{pk}", f"jobs:{tuning_job.project.name}"])
    return tuning_job


def _open_pipeline_again(tuning_job: TuningJob) -> None:
    """The pipeline of the study, if it has one, records the model at the new end. A version that it has recorded
    stays what it is."""
    # Locked: registry.py records under the same lock.
    pipelines = TrainingPipeline.every.select_for_update(no_key=True, of=("self",))
    for pipeline in pipelines.filter(tuning_job=tuning_job):
        if pipeline.version_id is not None:
            raise Refused(
                TRIALS,
                said(
                    "A training pipeline has recorded the model of its best trial, which more trials would not "
                    "change. Continue it as a new study."
                ),
            )
        TrainingPipeline.every.filter(pk=pipeline.pk).update(without_model="")


def counts_of(tuning_job: TuningJob) -> Counts:
    return Counts(tuning_job.max_trials, tuning_job.parallel_trials, tuning_job.max_failed_trials)


def _bring_secrets_again(tuning_job: TuningJob, now: datetime) -> None:
    """The secrets went with the end of the study. Stored ones are found again; values that came with the document are
    gone, and the refusal says so."""
    if tuning_job.project.archived_at is not None:
        name = tuning_job.project.name
        raise Refused(
            "project", said("Project {project} is archived: it takes no jobs any more.", project=name)
        )
    owner = trials.owner_of(tuning_job)
    types = machine_types.of_location(tuning_job.location_name)
    with about_trials():
        asked = parse_custom_job({"displayName": "trial", "jobSpec": tuning_job.trial_spec}, types)
        given = brought.with_git_credentials(asked)
        of_tuning_jobs.keep(tuning_job, of_jobs.found(given, tuning_job.project, owner, now))
