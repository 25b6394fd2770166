"""What a sampler of Optuna remembers with a trial, as a column of its row.

CMA-ES keeps its state as a pickle, which runs code when it is read. So it is sealed with the key of the deployment: who
can write into the database alone cannot make one.
"""

from __future__ import annotations

from collections.abc import Mapping

from agents.infra.secrets import SecretUnreadable, decrypt_fields, encrypt_fields
from jobs.models import Trial


def sealed(memory: Mapping[str, object] | None) -> bytes | None:
    return None if memory is None else encrypt_fields(dict(memory))


def read(trial: Trial) -> Mapping[str, object] | None:
    """None also where no key reads it: the sampler then takes the trial for one that it did not draw, and goes on."""
    if trial.sampler_sealed is None:
        return None
    try:
        return decrypt_fields(trial.sampler_sealed)
    except SecretUnreadable:
        return None
