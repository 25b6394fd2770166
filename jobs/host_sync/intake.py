"""What hosts tell, written down: learning.py knows what becomes of it, run by run.

One transaction per batch of one host. It holds the host's row and its lease token, so that a dispatcher which lost the
lease writes nothing any more. Only runs of that host are touched, whatever names come. Nothing is decided here: the
jobs concerned are marked as due in the same transaction, and advanced after it. Only the check of a host whose disk
turned out to be full is asked for before it, in a transaction of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from agents.hosts import host_history
from agents.infra import untrusted
from agents.infra.failpoints import failpoint
from agents.infra.sql import Parameter, PartialModel, SelectStatement, UpdateStatement
from agents.links.control_plane import Arrival, Fact, Forgotten, Frame, Gap, LogEnd, Sample
from agents.models import Host, HostStatus
from jobs.host_sync import strays
from jobs.host_sync.apply_reports import (
    IntakeResult,
    PendingWrites,
    RunReports,
    UnreadableFrames,
    apply_reports,
    lock_jobs,
)
from jobs.logs import storage
from jobs.models import Job, Run
from jobs.rules.lifecycle.states import RunPhase

_RUN = PartialModel(Run, without=("order", "log_proof", "stop_reason"))
_lease = SelectStatement(
    lambda: (
        Host.every.select_for_update(no_key=True)
        .filter(pk=Parameter("host"), lease_token=Parameter("token"))
        .order_by()
        .values_list("pk")
    )
)
_runs = SelectStatement(
    lambda: (
        Run.objects.select_for_update(no_key=True)
        .filter(pk__among=Parameter("runs"), host=Parameter("host"))
        .order_by("pk")
        .values_list(*_RUN.names)
    )
)
_deleted = SelectStatement(
    lambda: (
        Run.objects.filter(pk__among=Parameter("runs"), job__deleted_at__isnull=False)
        .order_by()
        .values_list("pk")
    )
)
_are_due = UpdateStatement(lambda: Job.every.filter(pk__among=Parameter("ids")), "due_at")


def take(
    host_id: int, token: int, arrivals: Sequence[Arrival], now: datetime, tries: UnreadableFrames
) -> IntakeResult:
    mail = sorted_by_run(arrivals)
    # Asked once, before: a batch is small, and the disk must not be asked under a lock.
    full = storage.is_disk_low() if any(each.log for each in mail.values()) else False
    if refused := [run for run, each in mail.items() if _refused_for_its_disk(each)]:
        _have_checked(host_id, token, refused, now)
    with transaction.atomic():
        failpoint("store.before")
        if not _hold_lease(host_id, token):
            return IntakeResult(current=False)
        told = _write(host_id, mail, full, now, tries)
    failpoint("store.after")
    return told


def sorted_by_run(arrivals: Sequence[Arrival]) -> dict[str, RunReports]:
    mail: dict[str, RunReports] = defaultdict(RunReports)
    for arrival in arrivals:
        each = mail[untrusted.text(arrival.run, 80)]
        match arrival.what:
            case Fact() as fact:
                each.facts.append(fact)
            case Frame() | Gap() as bytes_or_gap:
                each.log.append(bytes_or_gap)
            case LogEnd() as end:
                each.end = end
            case Forgotten():
                each.forgotten = True
            case Sample() as sample:
                each.samples.append(sample)
    return mail


def _refused_for_its_disk(mail: RunReports) -> bool:
    return any(untrusted.text(fact.document.get("refusal"), 32) == "disk_full" for fact in mail.facts)


def _have_checked(host_id: int, token: int, refused: Sequence[str], now: datetime) -> None:
    """A full host looks free: until its checklist says otherwise, one job after the other would fail there.

    Before the fact is written, so that whoever decides from it does not place the job there once more. Holding no job
    and no run: a change of status waits for whoever holds the host's key, and they may be waiting for these.
    """
    with transaction.atomic():
        current = Host.every.select_for_update().filter(pk=host_id, lease_token=token)
        news = Run.objects.filter(pk__in=refused, host=host_id, refusal="")
        if current.first() is not None and news.exists():
            Host.every.filter(pk=host_id).update(due_at=now)
            host_history.set_status(
                host_id, HostStatus.CHECKING, "a start was refused: its disk is full", now
            )


def _hold_lease(host_id: int, token: int) -> bool:
    """The row stays locked: the token cannot change before this transaction is over."""
    return bool(_lease(host=host_id, token=token))


def _write(
    host_id: int, mail: dict[str, RunReports], full: bool, now: datetime, tries: UnreadableFrames
) -> IntakeResult:
    speaks = [run for run, each in mail.items() if each.facts or each.end or each.forgotten]
    lock_jobs(speaks)
    told = IntakeResult()
    store = PendingWrites(now)
    found = [_RUN.build(row) for row in _runs(runs=mail, host=host_id)]
    unknown = {run: each for run, each in mail.items() if each.facts}
    # Asked when the runs are locked, as they are while their job is deleted: what comes of its logs now is let go.
    over = [run.pk for run in found if run.phase == RunPhase.CLOSED and mail[run.pk].log]
    if over:
        for run_id in _deleted.column(runs=over):
            mail[run_id].log.clear()
    for run in found:
        unknown.pop(run.pk, None)
        apply_reports(run, mail[run.pk], full, store, told, tries)
    store.save()
    if unknown:
        strays.record_strays(host_id, {run: each.facts[-1].document for run, each in unknown.items()}, now)
    if told.jobs:
        _are_due(ids=told.jobs, due_at=now)
    return told
