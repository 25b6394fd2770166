"""What should be on a host now: the wanted state of its runs, by one trip to the database, whatever their number."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Case, Exists, F, OuterRef, Q, When

from agents.hosts import recovery
from agents.infra.sql import Parameter, SelectStatement, read_ahead
from agents.links.control_plane import Wanted
from agents.models import Host
from jobs.host_sync import prepared, recovery_mode
from jobs.logs import storage
from jobs.models import HostOutputs, OutputStage, RecordingState, Run, ShellSession, Stray
from jobs.projects import log_storage
from jobs.rules.lifecycle.states import TERMINAL, RunPhase
from jobs.secrets import of_jobs

_COLUMNS = (
    "pk",
    "phase",
    "stop_wanted_at",
    "stop_grace_s",
    "declared_lost_at",
    "proved_at",
    "log_stored",
    "log_complete_at",
    "prove_due_at",
    "log_digest_here",
    "log_digest_host",
    "job__state",
    "job__deleted_at",
    "preparing",
    "metrics_stored",
    "metrics_proof",
)

# A run that was never started, is not to be stopped, and lacks nothing on its host. No other run must start.
_TO_START = Q(phase=RunPhase.CREATED, stop_wanted_at=None, preparing=False)
_on_host = SelectStatement(
    lambda: (
        Run.objects.filter(host=Parameter("host"), forgotten_at=None)
        # A held run only reserves a place and is not started. When it is not needed any more, its name is closed there.
        .exclude(held=True, stop_wanted_at=None)
        .order_by("created_at", "pk")
        .annotate(first=Case(When(_TO_START & ~Q(pk__among=Parameter("ordered")), then=F("order"))))
        .values_list(*_COLUMNS, "first")
    )
)
_strays = SelectStatement(
    lambda: (
        Stray.objects.filter(host=Parameter("host"), stop_wanted_at__isnull=False)
        .exclude(phase=RunPhase.CLOSED)
        .order_by()
        .values_list("run")
    )
)
_recordings = SelectStatement(
    lambda: (
        ShellSession.objects.filter(run__host=Parameter("host"), recording_state=RecordingState.COMING)
        .order_by("pk")
        .values_list("run", "recording", "recording_stored", "recording_size")
    )
)
_OUTPUT_STAGES = (OutputStage.WRITING, OutputStage.ENDING)
# Created runs whose hosts lack what others have stored.
_unfilled = Run.objects.filter(
    job=OuterRef("job"), host=OuterRef("host"), phase=RunPhase.CREATED, held=False, stop_wanted_at=None
)
# Jobs whose outputs on the host are not all stored, each with whether what others stored is on all hosts that need it:
# a gang starts together, and no replica waits for peers whose hosts take hours to be filled.
_outputs = SelectStatement(
    lambda: (
        HostOutputs.objects.filter(host=Parameter("host"), stage__in=_OUTPUT_STAGES)
        .annotate(
            lacks=Exists(HostOutputs.objects.filter(Exists(_unfilled), job=OuterRef("job"), filled_at=None))
        )
        .order_by()
        .values_list("job", "lacks")
    )
)
# What a host mostly has nothing of: one statement tells, in place of one for each.
_has = SelectStatement(
    lambda: (
        Host.every.filter(pk=Parameter("host"))
        .order_by()
        .values_list(
            Exists(
                ShellSession.objects.filter(
                    run__host=Parameter("host"), recording_state=RecordingState.COMING
                )
            ),
            Exists(HostOutputs.objects.filter(host=Parameter("host"), stage__in=_OUTPUT_STAGES)),
            Exists(recovery.unconfirmed()),
            Exists(
                Stray.objects.filter(host=Parameter("host"), stop_wanted_at__isnull=False).exclude(
                    phase=RunPhase.CLOSED
                )
            ),
        )
    )
)
_to_start = SelectStatement(
    lambda: Run.objects.filter(_TO_START, pk__among=Parameter("runs")).order_by().values_list("pk", "order")
)


@dataclass(frozen=True, slots=True)
class Row:
    """A run that its host has not forgotten yet."""

    run: str
    phase: str
    stop_wanted_at: datetime | None
    stop_grace_s: float
    declared_lost_at: datetime | None
    proved_at: datetime | None
    log_stored: int
    log_complete_at: datetime | None
    prove_due_at: datetime | None
    digest_here: str
    digest_host: str
    job_state: str
    job_deleted_at: datetime | None
    preparing: bool = False
    metrics_stored: int = 0
    metrics_proof: str = ""
    order: Mapping[str, Any] | None = None


def wanted(host_id: int, ordered: Collection[str] = ()) -> dict[str, Wanted]:
    """`ordered`: the runs whose start order was sent already."""
    # The runs first: a run of a job that is over must not be forgotten for want of what began after they were read.
    with read_ahead({_on_host: {"host": host_id, "ordered": ordered}, _has: {"host": host_id}}):
        rows = _on_host(host=host_id, ordered=ordered)
        answers = list(_has(host=host_id))
    # Without its row, a host may have anything.
    has_recordings, has_outputs, in_recovery, has_strays = (
        answers[0] if answers else (True, True, recovery.in_recovery_mode(), True)
    )
    disk_low: bool | None = None
    found: dict[str, Wanted] = {}
    recordings = _recordings_of(host_id) if has_recordings else {}
    outputs: dict[int, bool] = dict(_outputs(host=host_id)) if has_outputs else {}
    for columns in rows:
        row = Row(*columns)
        job = int(row.run.partition("-")[0]) if outputs else 0
        is_coming = row.log_complete_at is None or row.run in recordings or not row.metrics_proof
        if is_coming and disk_low is None:
            disk_low = storage.is_disk_low()
        held = is_coming and (bool(disk_low) or row.run in log_storage.held_runs())
        # Before what its predecessors wrote is on this host (jobs/outputs/filling.py), it is not started.
        is_filled = not outputs.get(job, False)
        found[row.run] = want(row, held, recordings.get(row.run), job in outputs, is_filled)
    if in_recovery:
        return recovery_mode.pull_logs_only(found)
    if back := [run for run, want in found.items() if want.held_back]:
        names = prepared.to_prepare(host_id, back)
        found.update({run: replace(found[run], prepare=names) for run in back})
    for run in _strays.column(host=host_id) if has_strays else ():
        found[run] = Wanted(stop=True, grace_s=settings.TRAINYARD.grace_s)
    return found


def _recordings_of(host_id: int) -> dict[str, list[tuple[str, int]]]:
    """By run, the recordings of shells that are not complete here, with the offset from which bytes are missing.

    One whose bytes are all here, but not proved yet, has no offset to ask for. Its host keeps it until then.
    """
    found: dict[str, list[tuple[str, int]]] = {}
    for run, name, stored, size in _recordings(host=host_id):
        of_run = found.setdefault(run, [])
        if size is None:
            of_run.append((name, stored))
    return found


def want(
    row: Row,
    held: bool,
    recordings: Sequence[tuple[str, int]] | None = None,
    has_outputs: bool = False,
    is_filled: bool = True,
) -> Wanted:
    """`held`: too little free disk, or the limit of the project. The host then keeps the log until there is room.

    `recordings`: of shells on the run, that are not complete here; None if there is none. `has_outputs`: its job has
    outputs on the host that are not stored. `is_filled`: what others stored of them is on the host.
    """
    if forgettable(row) and ((recordings is None and not has_outputs) or row.job_deleted_at is not None):
        return Wanted(forget=True)
    declared_lost = row.declared_lost_at is not None and row.proved_at is None
    return Wanted(
        # A run that was declared lost is ended, whatever its host reports about it when it comes back.
        stop=declared_lost or (row.stop_wanted_at is not None and row.phase != RunPhase.CLOSED),
        grace_s=0.0 if declared_lost else row.stop_grace_s,
        pull_from=None if held or row.log_complete_at is not None else row.log_stored,
        # The values of secrets are added when the order is asked for, and not kept with what is wanted.
        order=None if row.order and of_jobs.lacks_values(row.order) else row.order,
        recordings=() if held else tuple(recordings or ()),
        metrics_from=None if held or row.metrics_proof else row.metrics_stored,
        held_back=(row.preparing or not is_filled)
        and row.phase == RunPhase.CREATED
        and row.stop_wanted_at is None,
    )


def forgettable(row: Row) -> bool:
    """Whether the host may delete the run: its job is over, and nothing of the run is only on the host.

    A log that differs from the host's stays on the host, for a person to look at, until the job is deleted.
    """
    if row.phase != RunPhase.CLOSED or (row.declared_lost_at is not None and row.proved_at is None):
        return False
    if row.job_deleted_at is not None:
        return True
    here = row.log_complete_at is not None and row.prove_due_at is None
    differs = bool(row.digest_here and row.digest_host) and row.digest_here != row.digest_host
    return here and not differs and bool(row.metrics_proof) and row.job_state in TERMINAL


@contextmanager
def orders_ahead(runs: Sequence[str]) -> Iterator[None]:
    """Read what is asked in the block before runs are started: the recovery mode, and `orders` of these runs."""
    with read_ahead({recovery.UNCONFIRMED: {}, _to_start: {"runs": runs}}):
        yield


def orders(host_runs: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The start orders of the runs that were never started and are not to be stopped. Other runs must not start."""
    return dict(_to_start(runs=host_runs))
