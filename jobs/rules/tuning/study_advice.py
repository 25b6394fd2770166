"""What may not do what the person wants who submits a study. It refuses nothing."""

from __future__ import annotations

from collections.abc import Iterator

from agents.infra.texts import said
from jobs.rules.list_text import list_text
from jobs.rules.spec import advice, without_effect
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.tuning.lost_arguments import lost_arguments
from jobs.rules.tuning.study import DEFAULT_ALGORITHM, StudySpec, kept_fields


def study_advice(study: StudySpec, trial_spec: CustomJobSpec) -> Iterator[str]:
    yield from lost_arguments(trial_spec)
    yield from _thresholds(study)
    of_study = [(f"studySpec.{name}", value) for name, value in kept_fields(study)]
    of_trials = [(f"trialJobSpec.{name}", value) for name, value in without_effect.kept_fields(trial_spec)]
    yield from (each.text for each in advice.without_effect([*of_study, *of_trials]))


def _thresholds(study: StudySpec) -> Iterator[str]:
    watched = [metric.name for metric in study.metrics if metric.safety is not None]
    if watched and study.algorithm != DEFAULT_ALGORITHM:
        yield said(
            "{algorithm} does not look at the threshold of {metrics} (safetyConfig): only the default search avoids "
            "what is not safe. These metrics are watched all the same.",
            algorithm=study.algorithm,
            metrics=list_text(watched, 8),
        )
