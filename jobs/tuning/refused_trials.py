"""Refusals of the job of a trial, told about the study that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from agents.infra.refusals import Refused
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.tuning.parse_tuning_job import TRIAL_JOB_SPEC


@contextmanager
def about_trials() -> Iterator[None]:
    """Refusals of a trial name the fields that the tuning job has."""
    try:
        yield
    except InvalidDocument as refused:
        raise InvalidDocument(
            tuple(replace(each, field=_in_study(each.field)) for each in refused.violations)
        ) from refused
    except Refused as refused:
        refused.field = _in_study(refused.field)
        raise


def _in_study(path: str) -> str:
    return path.replace("job_spec", TRIAL_JOB_SPEC, 1) if path.startswith("job_spec") else path
