"""The runs and strays that hold resources of hosts now. A pass reads them once: for capacity, backfill and shares."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db.models import QuerySet

from agents.infra.sql import SelectStatement
from jobs.models import Proof, Run, Stray
from jobs.rules.lifecycle.states import RunPhase


class ClaimHolder(NamedTuple):
    """A run whose claims are not released, with what a pass needs of its job. The fields are named like the columns."""

    pk: str
    job: int
    job__project: int
    job__owner: int | None
    job__owner_name: str
    job__spot: bool
    job__timeout_s: float
    job__started_at: datetime | None
    job__outcome: str
    job__cancel_requested_at: datetime | None
    job__preempted_by: str
    host: int
    cpus: float
    memory_mb: int
    port: int
    gpu_uuids: list[str]
    created_at: datetime
    stop_wanted_at: datetime | None
    stop_grace_s: float
    host__machine: int | None

    @property
    def machine(self) -> int:
        """The host whose resources it holds: of a login, the machine."""
        return self.host__machine or self.host


HOLDERS = SelectStatement(
    lambda: Run.objects.filter(released_at=None).order_by().values_list(*ClaimHolder._fields)
)


def read_holders() -> list[ClaimHolder]:
    """Every run that holds claims now."""
    return [ClaimHolder._make(row) for row in HOLDERS()]


def living_strays() -> QuerySet[Stray]:
    """Runs that a restored backup has forgotten and that still run: they hold their resources until they are ended."""
    return Stray.objects.filter(proof=Proof.SEALED).exclude(phase=RunPhase.CLOSED)


def gpus_of_strays() -> frozenset[str]:
    """The UUIDs of the GPUs that living strays hold."""
    return frozenset(uuid for uuids in living_strays().values_list("gpu_uuids", flat=True) for uuid in uuids)
