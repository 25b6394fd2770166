"""The secrets of a tuning job: found at submit, copied for each of its trials, deleted when no trial can come any more.

A copy means that the last trial next week runs with what the first one ran with.
"""

from __future__ import annotations

from collections.abc import Mapping

from agents.infra.sql import Parameter, SelectStatement
from jobs.models import TuningJob, TuningSecret
from jobs.secrets.of_jobs import Values
from jobs.secrets.sealed import seal, unseal

_of_study = SelectStatement(
    lambda: (
        TuningSecret.objects.filter(tuning_job=Parameter("study"))
        .order_by()
        .values_list("pool", "name", "sealed")
    )
)


def keep(tuning_job: TuningJob, values: Values) -> None:
    TuningSecret.objects.bulk_create(
        TuningSecret(
            tuning_job=tuning_job, pool=pool, name=name, sealed=seal(_owner(tuning_job.pk, pool), name, value)
        )
        for (pool, name), value in values.items()
    )


def values_of(tuning_job: TuningJob) -> Mapping[tuple[int, str], str]:
    """Raises SecretUnreadable."""
    return {
        (pool, name): unseal(_owner(tuning_job.pk, pool), name, sealed)
        for pool, name, sealed in _of_study(study=tuning_job.pk)
    }


def forget(tuning_job: TuningJob) -> None:
    TuningSecret.objects.filter(tuning_job=tuning_job).delete()


def _owner(tuning_job: int, pool: int) -> str:
    return f"tuning job {tuning_job} pool {pool}"
