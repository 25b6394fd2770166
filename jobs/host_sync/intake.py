"""Store a batch of reports of one host, in one transaction. apply_reports.py applies them, run by run.

The transaction locks the host's row and checks its lease token, so that a dispatcher that lost the lease writes nothing
any more. Only runs of that host are changed, whatever names the reports carry. Nothing is decided here: the jobs
concerned are marked as due in the same transaction, and advanced after it. Only the check of a host with a full disk is
asked for before it, in a transaction of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime

from django.db import transaction

from agents.hosts import host_history
from agents.infra import untrusted
from agents.infra.failpoints import failpoint
from agents.infra.sql import Parameter, PartialModel, SelectStatement, UpdateStatement
from agents.infra.texts import said
from agents.links.control_plane import (
    Arrival,
    Fact,
    Forgotten,
    Frame,
    Gap,
    LogEnd,
    MetricsEnd,
    MetricsPiece,
    RecordingEnd,
    RecordingPiece,
    Sample,
)
from agents.models import Host, HostStatus
from jobs.host_sync import samples, strays
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
from jobs.projects import log_storage
from jobs.recordings import intake as recordings
from jobs.rules.lifecycle.states import TERMINAL, RunPhase
from jobs.wake import hints

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
_unlocked_runs = SelectStatement(
    lambda: (
        Run.objects.filter(pk__among=Parameter("runs"), host=Parameter("host"))
        .order_by()
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
_over = SelectStatement(
    lambda: Job.every.filter(pk__among=Parameter("jobs"), state__in=TERMINAL).order_by().values_list("pk")
)


def take(
    host_id: int, token: int, arrivals: Sequence[Arrival], now: datetime, unreadable: UnreadableFrames
) -> IntakeResult:
    reports = grouped_by_run(arrivals)
    # Asked once, before the locks: a batch is small, and no lock may wait for a question to the disk.
    kept = _kept_on_host(reports)
    if refused := [run for run, each in reports.items() if _refused_for_full_disk(each)]:
        _ask_for_check(host_id, token, refused, now)
    with transaction.atomic():
        failpoint("store.before")
        if not _hold_lease(host_id, token):
            return IntakeResult(current=False)
        result = _write(host_id, reports, kept, now, unreadable)
    failpoint("store.after")
    return result


def _kept_on_host(reports: dict[str, RunReports]) -> Collection[str]:
    """The runs of which nothing more is stored now: there is no room, here or in the limit of their project."""
    with_log = [run for run, each in reports.items() if each.log or each.recordings or each.metrics]
    if not with_log:
        return ()
    return with_log if storage.is_disk_low() else log_storage.held_runs()


def grouped_by_run(arrivals: Sequence[Arrival]) -> dict[str, RunReports]:
    reports: dict[str, RunReports] = defaultdict(RunReports)
    for arrival in arrivals:
        each = reports[untrusted.text(arrival.run, 80)]
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
            case RecordingPiece() | RecordingEnd() as recorded:
                each.recordings.append(recorded)
            case MetricsPiece() | MetricsEnd() as reported:
                each.metrics.append(reported)
    return reports


def _refused_for_full_disk(reports: RunReports) -> bool:
    return any(untrusted.text(fact.document.get("refusal"), 32) == "disk_full" for fact in reports.facts)


def _ask_for_check(host_id: int, token: int, refused: Sequence[str], now: datetime) -> None:
    """Ask for a check of a host whose disk is full: it looks free, and one job after the other would fail there.

    This comes before the fact is written, so that no pass that follows the fact places the job there once more. It
    holds no lock of a job or run: a change of host status waits for the lock of the host, and the holder of that lock
    may wait for jobs and runs.
    """
    with transaction.atomic():
        current = Host.every.select_for_update().filter(pk=host_id, lease_token=token)
        news = Run.objects.filter(pk__in=refused, host=host_id, refusal="")
        if current.first() is not None and news.exists():
            Host.every.filter(pk=host_id).update(due_at=now)
            host_history.set_status(
                host_id, HostStatus.CHECKING, said("a start was refused: its disk is full"), now
            )


def _hold_lease(host_id: int, token: int) -> bool:
    """Lock the host's row if the token is current: it cannot change before this transaction is over."""
    return bool(_lease(host=host_id, token=token))


def _write(
    host_id: int,
    reports: dict[str, RunReports],
    kept: Collection[str],
    now: datetime,
    unreadable: UnreadableFrames,
) -> IntakeResult:
    with_facts = {run for run, each in reports.items() if each.facts or each.end or each.forgotten}
    locked = lock_jobs(with_facts | _resumed(host_id, reports.keys() - with_facts, reports, now))
    result = IntakeResult()
    writes = PendingWrites(now)
    found = [_RUN.build(row) for row in _runs(runs=reports, host=host_id)]
    unknown = {run: each for run, each in reports.items() if each.facts}
    # A job is deleted under the same locks, so this is asked after locking. Log bytes of a deleted job are dropped.
    with_rows = [run for run in found if reports[run.pk].log or reports[run.pk].metrics]
    over = [run.pk for run in with_rows if run.phase == RunPhase.CLOSED]
    if over:
        for run_id in _deleted.column(runs=over):
            reports[run_id].log.clear()
            reports[run_id].metrics.clear()
    for run in found:
        unknown.pop(run.pk, None)
        apply_reports(run, reports[run.pk], run.pk in kept, writes, result, unreadable)
        if run.pk not in kept:
            recordings.take(run.pk, reports[run.pk].recordings)
    writes.save()
    if unknown:
        strays.record_strays(host_id, {run: each.facts[-1].document for run, each in unknown.items()}, now)
    hints.trials(_awaited(result.measured, locked))
    if result.jobs:
        _are_due(ids=result.jobs, due_at=now)
    return result


def _resumed(host_id: int, runs: Collection[str], reports: dict[str, RunReports], now: datetime) -> set[str]:
    """Those of these runs whose job becomes due although no fact came: what they do says something new about it.

    They are read before they are locked, because jobs are locked before runs. The lease is held, and only its holder
    writes what is read here: it is the same under the lock.
    """
    active = [run for run in runs if reports[run].samples or reports[run].log]
    found = [_RUN.build(row) for row in _unlocked_runs(runs=active, host=host_id)] if active else []
    return {
        run.pk
        for run in found
        if samples.record_activity(run, reports[run.pk].samples, bool(reports[run.pk].log), now)[1]
    }


def _awaited(measured: set[int], locked: Collection[int]) -> set[int]:
    """The jobs whose studies may wait for what has come. A job that is locked here and goes on will end after this has
    committed, and its end tells the study (lifecycle/advance.py): a look before that would find nothing."""
    ending = measured.intersection(locked)
    return (measured - ending) | (set(_over.column(jobs=list(ending))) if ending else set())
