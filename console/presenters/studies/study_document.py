"""A study as the document that submits it again, and as a page shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agents.infra.text import visible
from console.presenters.new_job import as_code
from jobs.models import TuningJob
from jobs.rules.spec.custom_job import to_document
from jobs.rules.spec.secret_variables import without_values
from jobs.rules.tuning import study as asked_for
from jobs.rules.tuning.parse_study import MAX_PRIOR


def study_document(tuning_job: TuningJob) -> dict[str, Any]:
    """The HyperparameterTuningJob as the REST API takes it, for another study: that draws by a seed of its own. It has
    no values of secrets."""
    return _document(tuning_job, tuning_job.study, tuning_job.trial_spec)


def exported_document(tuning_job: TuningJob) -> dict[str, Any]:
    """The same with the seed: a study of it draws the same points, as far as they do not follow from results."""
    return {**study_document(tuning_job), **_of_seed(tuning_job.seed)}


def _of_seed(seed: int) -> dict[str, Any]:
    """As text: a number of 63 bits is none in JavaScript."""
    return {"trainyard": {"seed": str(seed)}}


def continued_document(tuning_job: TuningJob) -> dict[str, Any]:
    """The same for a study that learns from this one, and from what this one has learnt from."""
    document = study_document(tuning_job)
    before = document["studySpec"].get("transferLearningConfig", {}).get("priorStudyNames", [])
    names = [str(tuning_job.pk), *before][:MAX_PRIOR]
    spec = {**document["studySpec"], "transferLearningConfig": {"priorStudyNames": names}}
    return {**document, "studySpec": spec}


def canonical_document(asked: asked_for.TuningJob) -> dict[str, Any]:
    """The same for one that was read and not submitted yet."""
    document = _document(asked, asked_for.study_document(asked.study), to_document(asked.trial_spec))
    return document if asked.seed is None else {**document, **_of_seed(asked.seed)}


def _document(
    asked: TuningJob | asked_for.TuningJob, study: Mapping[str, object], trial_spec: Mapping[str, object]
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "displayName": asked.display_name,
        "studySpec": study,
        "maxTrialCount": asked.max_trials,
        "parallelTrialCount": asked.parallel_trials,
        "trialJobSpec": without_values(trial_spec),
    }
    if asked.max_failed_trials:
        document["maxFailedTrialCount"] = asked.max_failed_trials
    if asked.labels:
        document["labels"] = dict(asked.labels)
    return document


def as_text(document: object) -> str:
    return visible(json.dumps(document, indent=2, ensure_ascii=False))


def as_curl(document: Any, project: str, location: str, base: str) -> str:
    """The request that submits the study. `base`: the address of this deployment, without a slash at its end."""
    return as_code.curl(without_values(document), project, location, base, "hyperparameterTuningJobs")  # type: ignore[arg-type]
