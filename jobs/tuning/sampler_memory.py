"""What a sampler of Optuna remembers with a trial, as a column of its row.

CMA-ES keeps its state as a pickle, which runs code when it is read. So it is sealed with the key of the deployment: who
can write into the database alone cannot make one.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from agents.infra.secrets import decrypt_fields, encrypt_fields
from jobs.models import Trial


def sealed(memory: Mapping[str, object] | None) -> str | None:
    return None if memory is None else base64.b64encode(encrypt_fields(dict(memory))).decode()


def read(trial: Trial) -> Mapping[str, object] | None:
    """Raises SecretUnreadable."""
    return None if trial.sampler is None else decrypt_fields(base64.b64decode(trial.sampler))
