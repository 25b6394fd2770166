"""The runs that hold something of a host now, read once: for what is free, for who runs until when, for the shares."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db.models import QuerySet

from agents.infra.sql import SelectStatement
from jobs.models import Proof, Run, Stray
from jobs.rules.lifecycle.states import RunPhase


class ClaimHolder(NamedTuple):
    """A run whose claims are not released, and what of its job counts. Its fields are named as the columns are."""

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


_read = SelectStatement(
    lambda: Run.objects.filter(released_at=None).order_by().values_list(*ClaimHolder._fields)
)


def read_holders() -> list[ClaimHolder]:
    return [ClaimHolder._make(row) for row in _read()]


def living_strays() -> QuerySet[Stray]:
    """What runs on although a restored backup has forgotten it: it holds what it holds, until it is ended."""
    return Stray.objects.filter(proof=Proof.SEALED).exclude(phase=RunPhase.CLOSED)


def gpus_of_strays() -> frozenset[str]:
    """Their GPUs, by UUID."""
    return frozenset(uuid for uuids in living_strays().values_list("gpu_uuids", flat=True) for uuid in uuids)
