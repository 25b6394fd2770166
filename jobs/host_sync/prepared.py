"""What hosts report about their preparations, and what follows for the runs that are held back for them.

The reports are stored in one transaction, and the runs released or refused in the next one, which locks jobs first. If
a process dies between the two, the sweep does the second.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet

from agents.infra.texts import join, said
from agents.links.control_plane import PreparationName, PreparationReport
from agents.models import Host
from jobs.host_sync import facts
from jobs.host_sync.apply_reports import PendingWrites
from jobs.lifecycle import snapshot
from jobs.models import Job, MetricsProof, Preparation, PreparationNeed, Run
from jobs.preparations import asking, cache_entries, commits, history, images, reasons, reducer_python
from jobs.preparations.kinds import KINDS
from jobs.preparations.masking import Mask
from jobs.rules.lifecycle.preparation_states import HOST_NOT_PREPARED, NOT_PREPARED, PreparationState
from jobs.rules.lifecycle.states import JobState, RunPhase

# A process that was killed on the host so often will be killed again.
MAX_LOST = 3
OPEN = (PreparationState.WANTED, PreparationState.WORKING)
# Runs that are held back, and those of a job that goes back to the queue: it may well get the same hosts again.
_WAITS = Q(run__preparing=True, run__phase=RunPhase.CREATED, run__stop_wanted_at=None) | Q(
    Q(run__job__outcome=JobState.QUEUED, run__attempt=F("run__job__attempt"))
    | Q(run__job__state=JobState.QUEUED, run__attempt=F("run__job__attempt") - 1),
    run__job__cancel_requested_at=None,
)
_COLUMNS = ("done", "total", "unit", "message", "tail")


def to_prepare(host_id: int, runs: Sequence[str]) -> tuple[PreparationName, ...]:
    """What this host is to prepare for these runs, and has not. What is asked of other things comes after them."""
    found = Preparation.objects.filter(host=host_id, needs__run__in=runs, phase__in=OPEN).distinct()
    found = found.exclude(reducer_python.waits_for_others(runs))
    return tuple(PreparationName(*row) for row in found.order_by("pk").values_list("kind", "key", "asked"))


def orders(host_id: int, names: Sequence[PreparationName]) -> dict[PreparationName, Mapping[str, Any]]:
    rows = Preparation.objects.filter(host=host_id, key__in=[name.key for name in names])
    by_name = {PreparationName(row.kind, row.key, row.asked): row for row in rows}
    return {
        name: {**by_name[name].what, **KINDS[name.kind].secrets(by_name[name])}
        for name in names
        if name in by_name and name.kind in KINDS
    }


def store(host_id: int, token: int, reports: Sequence[PreparationReport], now: datetime) -> None:
    """Store the reports, if the lease is still ours."""
    by_name = {(each.name.kind, each.name.key): each for each in reports}
    with transaction.atomic():
        if not _has_lease(host_id, token):
            return
        rows = Preparation.objects.filter(host=host_id, key__in=[key for _, key in by_name])
        for row in rows.select_for_update().order_by("pk"):
            report = by_name.get((row.kind, row.key))
            if report is not None and _is_news(row, report):
                _fill(row, report, now)
                row.save()


def give_up(
    host_id: int, token: int, names: Sequence[PreparationName], now: datetime
) -> list[PreparationName]:
    """Those of these that the host is to end, because no run waits for them. The host is at all of them.

    They are asked for anew when a run needs them. While their rows are locked no new run can begin to wait for them
    (asking.py), so a host that ends one ends it for nobody.
    """
    with transaction.atomic():
        if not _has_lease(host_id, token):
            return []
        found = Preparation.objects.filter(host=host_id, key__in=[name.key for name in names])
        rows = {(row.kind, row.key): row for row in found.select_for_update().order_by("pk")}
        waiting = PreparationNeed.objects.filter(_WAITS, preparation__in=list(rows.values()))
        needed = set(waiting.values_list("preparation", flat=True))
        over = {
            name: row for name in names if (row := rows.get((name.kind, name.key))) and row.pk not in needed
        }
        begun = [row.pk for name, row in over.items() if row.asked == name.asked and row.phase in OPEN]
        asking.ask_anew(begun, now)
        return list(over)


def _has_lease(host_id: int, token: int) -> bool:
    return Host.every.select_for_update(no_key=True).filter(pk=host_id, lease_token=token).exists()


def fail(host_id: int, sha256: str, words: str, now: datetime) -> None:
    """Note that the host cannot take a file, for the preparations that need it."""
    rows = Preparation.objects.filter(host=host_id, phase__in=OPEN).exclude(what={})
    failed = [row.pk for row in rows if sha256 in {each["sha256"] for each in row.what.get("blobs", ())}]
    Preparation.objects.filter(pk__in=failed, phase__in=OPEN).update(
        phase=PreparationState.FAILED, fault="host", message=words, ended_at=now
    )


def _is_news(row: Preparation, report: PreparationReport) -> bool:
    """A report about an earlier asking is old. Also one that it is ready: it may have been thrown away since."""
    return report.name.asked == row.asked and row.phase in OPEN


def _fill(row: Preparation, report: PreparationReport, now: datetime) -> None:
    row.done, row.total, row.unit = report.done, report.total, report.unit
    mask = Mask(KINDS[row.kind].secrets(row) if row.kind in KINDS else {})
    row.message, row.tail = mask.text(report.message), mask.tail(report.tail)
    row.began_at = row.began_at or now
    if report.state == "LOST":
        row.lost += 1
        row.began_at = None
        row.phase = PreparationState.WANTED
        row.asked += 1
        if row.lost >= MAX_LOST:
            row.phase, row.fault, row.ended_at = PreparationState.FAILED, "host", now
        return
    row.phase = PreparationState(report.state)
    if row.phase is not PreparationState.WORKING:
        row.ended_at, row.fault = now, report.fault if row.phase is PreparationState.FAILED else ""
        row.result = dict(report.result)


def held_back() -> QuerySet[Run]:
    """The runs that wait for a preparation, if they are still wanted."""
    return Run.objects.filter(preparing=True, phase=RunPhase.CREATED, stop_wanted_at=None)


def settle(now: datetime, hosts: Collection[int] | None = None) -> tuple[set[int], set[int]]:
    """Release the runs of jobs that have all they need, and refuse those of which something failed.

    `hosts`: only of jobs that have runs there.

    Returns the jobs to decide about, and the hosts on which something else is wanted now.
    """
    waiting = held_back()
    if hosts is not None:
        waiting = waiting.filter(job__in=Run.objects.filter(host__in=hosts).order_by().values("job"))
    jobs = set(waiting.order_by().values_list("job", flat=True).distinct())
    if not jobs:
        return set(), set()
    with transaction.atomic():
        snapshot.hold_jobs(ids=jobs)
        commits.settle(jobs)
        images.settle(jobs)
        released, places = _release(jobs, now)
        refused = _refuse(jobs, now)
        for job in sorted(jobs - refused):
            reasons.explain(job, now)
        Job.every.filter(pk__in=released | refused).update(due_at=now)
    return released | refused, places


def _release(jobs: set[int], now: datetime) -> tuple[set[int], set[int]]:
    needs = PreparationNeed.objects.filter(run__in=held_back().filter(job__in=jobs))
    lacking = needs.exclude(preparation__phase=PreparationState.READY)
    ready = held_back().filter(job__in=jobs - set(lacking.values_list("run__job", flat=True)))
    found = list(ready.order_by("pk").values_list("pk", "job", "host"))
    released = {job for _, job, _ in found}
    history.prepared([pk for pk, _, _ in found], now)
    cache_entries.show_installs([pk for pk, _, _ in found])
    Run.objects.filter(pk__in=[pk for pk, _, _ in found]).update(preparing=False, prepared_at=now)
    return released, {host for _, _, host in found}


def _refuse(jobs: set[int], now: datetime) -> set[int]:
    """Close the runs of which something failed, as if their host had refused the start: it was never asked for it."""
    failed = PreparationNeed.objects.filter(
        run__in=held_back().filter(job__in=jobs), preparation__phase=PreparationState.FAILED
    ).select_related("preparation")
    failures: dict[str, Preparation] = {}
    for need in failed.order_by("preparation"):
        # What the user must mend comes before what another host may do better.
        known = failures.get(need.run_id)
        if known is None or need.preparation.fault == "user" != known.fault:
            failures[need.run_id] = need.preparation
    writes = PendingWrites(now)
    runs = Run.objects.select_for_update(no_key=True, of=("self",)).filter(pk__in=failures).order_by("pk")
    for run in runs.select_related("job__project").defer("order", "log_proof"):
        columns = facts.fill_facts(run, _refusal(failures[run.pk], run.job.project.name), now)
        run.preparing, run.log_complete_at, run.forgotten_at = False, now, now
        run.metrics_proof = MetricsProof.NONE
        writes.changed.append(
            (run, columns | {"preparing", "log_complete_at", "forgotten_at", "metrics_proof"})
        )
    writes.save()
    return {run.job_id for run, _ in writes.changed}


def _refusal(failure: Preparation, project: str) -> facts.ReportedFacts:
    words = failure.message or said("it did not say why")
    cure = images.cure(failure, project)
    message = said("{what}: {words}", what=failure.title, words=words)
    refusal = NOT_PREPARED if failure.fault == "user" else HOST_NOT_PREPARED
    found = facts.read_facts(
        {
            "phase": "closed",
            "why": "refused",
            "refusal": refusal,
            "message": join(" ", [message, cure]) if cure else message,
        }
    )
    assert found is not None
    return found
