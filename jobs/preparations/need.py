"""What a kind of preparation tells: what a run needs on its host, and what is added when the host is asked for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from jobs.models import Preparation, Run
from jobs.rules.spec.custom_job import CustomJobSpec, Pool


@dataclass(frozen=True, slots=True)
class Need:
    """A host prepares the same (kind, key) once. `what` is what it is told; it is stored, so it holds no secret."""

    kind: str
    key: str
    what: Mapping[str, Any]
    title: str


class Kind(Protocol):
    """One kind of preparation. On hosts, its other half is in `agents/runner/preparations/worker.py`."""

    @property
    def name(self) -> str:
        """As on the wire."""

    def needs(self, run: Run, spec: CustomJobSpec, pool: Pool) -> Iterable[Need]:
        """What this run needs on its host. Its order is made already."""

    def secrets(self, preparation: Preparation) -> Mapping[str, Any]:
        """What is added to `what` when the host is asked: credentials, for example, that must not be stored twice."""
