"""Apply the reports of a host to one run: new facts, and the log bytes that continue what is stored.

The writes of all runs of a batch are gathered and written together. The caller holds the row locks of the runs, and of
the jobs that become due.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agents.hosts import gpu_quarantine
from agents.infra import untrusted
from agents.infra.failpoints import failpoint
from agents.infra.sql import Parameter, UpdateStatements
from agents.links.control_plane import (
    Accepted,
    Fact,
    Frame,
    Gap,
    LogEnd,
    MetricsEnd,
    MetricsPiece,
    RecordingEnd,
    RecordingPiece,
    Sample,
)
from jobs.host_sync import facts, samples
from jobs.lifecycle import snapshot
from jobs.logs import segments
from jobs.logs.pieces import Block, Tail
from jobs.metrics import intake as metrics
from jobs.models import LogGap, Run, RunSample
from jobs.preparations import asking
from jobs.rules.lifecycle.preparation_states import UNPREPARED
from jobs.rules.lifecycle.states import RunPhase

# How often a payload that cannot be read is asked for; then its range becomes a gap.
MAX_TRIES = 3
GPU_BUSY = "gpu_busy"

_run = UpdateStatements(lambda: Run.objects.filter(pk=Parameter("run")))


@dataclass(slots=True)
class IntakeResult:
    """What a batch brought: offsets for the link, jobs for the decider, jobs of which all metrics of a run are
    here, logs for open pages, tails to be rolled."""

    current: bool = True
    acks: dict[str, int] = field(default_factory=dict)
    pulls: dict[str, int] = field(default_factory=dict)
    jobs: set[int] = field(default_factory=set)
    measured: set[int] = field(default_factory=set)
    logs: set[str] = field(default_factory=set)
    long_tails: set[str] = field(default_factory=set)

    def merged_with(self, more: IntakeResult) -> IntakeResult:
        """Both results; where they differ, the later one counts."""
        return IntakeResult(
            self.current and more.current,
            self.acks | more.acks,
            self.pulls | more.pulls,
            self.jobs | more.jobs,
            self.measured | more.measured,
            self.logs | more.logs,
            self.long_tails | more.long_tails,
        )

    @property
    def accepted(self) -> Accepted:
        return Accepted(self.acks, self.pulls, self.current)


@dataclass(slots=True)
class RunReports:
    """The reports about one run, in the order in which they came."""

    facts: list[Fact] = field(default_factory=list)
    log: list[Frame | Gap] = field(default_factory=list)
    end: LogEnd | None = None
    forgotten: bool = False
    samples: list[Sample] = field(default_factory=list)
    recordings: list[RecordingPiece | RecordingEnd] = field(default_factory=list)
    metrics: list[MetricsPiece | MetricsEnd] = field(default_factory=list)


@dataclass(slots=True)
class UnreadableFrames:
    """How often the payload at an offset could not be read. In memory only: it only bounds the number of pulls."""

    of: dict[tuple[str, int], int] = field(default_factory=dict)

    def exhausted(self, run: str, start: int) -> bool:
        if len(self.of) > 1_000:
            self.of.clear()
        self.of[run, start] = self.of.get((run, start), 0) + 1
        return self.of[run, start] >= MAX_TRIES


def lock_jobs(runs: Collection[str]) -> Collection[int]:
    """Lock the jobs of these runs, before the runs, as all code does. A run's id begins with its job's. Returns the
    jobs."""
    heads = {int(head) for run in runs if (head := run.partition("-")[0]).isascii() and head.isdigit()}
    ids = [pk for pk in heads if pk < 2**63]
    if ids:
        snapshot.hold_jobs(ids=ids)
    return ids


@dataclass(slots=True)
class PendingWrites:
    """The writes of a batch, gathered over its runs."""

    now: datetime
    changed: list[tuple[Run, set[str]]] = field(default_factory=list)
    blocks: list[tuple[str, Block]] = field(default_factory=list)
    gaps: list[LogGap] = field(default_factory=list)
    samples: list[RunSample] = field(default_factory=list)

    def save(self) -> None:
        failpoint("log.before")
        segments.keep(self.blocks)
        LogGap.objects.bulk_create(self.gaps)
        samples.save(self.samples)
        for run, columns in self.changed:
            _run({name: getattr(run, name) for name in columns}, run=run.pk)
        failpoint("log.after")


def apply_reports(
    run: Run,
    reports: RunReports,
    kept_on_host: bool,
    writes: PendingWrites,
    result: IntakeResult,
    unreadable: UnreadableFrames,
) -> None:
    changed: set[str] = set()
    phase = run.phase
    for fact in reports.facts:
        known = facts.read_facts(fact.document)
        if known is not None:
            changed |= facts.fill_facts(run, known, writes.now) | _closed_by_returned_host(
                run, known, writes.now
            )
    if run.refusal == UNPREPARED and "refusal" in changed:
        asking.not_there(run.pk, writes.now)
    # Nothing is decided from a claim alone: a later fact follows, or the deadline of the start.
    if run.phase != RunPhase.CLAIMED and (changed - {"log_size"} or run.phase != phase):
        result.jobs.add(run.job_id)
    if run.phase == RunPhase.CLOSED != phase:
        _quarantine_busy_gpus(run, reports, writes.now)
    # A keeper that is older than metrics says nothing of them.
    if any(fact.document.get("metrics", False) is False for fact in reports.facts):
        changed |= metrics.nothing_reported(run)
    if reports.metrics and not kept_on_host:
        changed |= metrics.take(run, reports.metrics, writes.now)
    if reports.end is not None:
        changed |= _end_of_log(run, reports.end, writes.now)
    if reports.log:
        changed |= _append(run, reports.log, kept_on_host, writes, result, unreadable)
    changed |= _complete_log(run, writes.now)
    if reports.samples or reports.log:
        changed |= _add_samples(run, reports, writes, result)
    if reports.forgotten and run.phase == RunPhase.CLOSED and run.forgotten_at is None:
        run.forgotten_at = writes.now
        changed.add("forgotten_at")
    if changed:
        writes.changed.append((run, changed))
    if changed & {"log_stored", "log_size", "log_complete_at"}:
        result.logs.add(run.pk)
    if _is_measured(run, reports, changed):
        result.measured.add(run.job_id)


def _is_measured(run: Run, reports: RunReports, changed: Collection[str]) -> bool:
    """Whether the last of what its program reported has come. Most programs report nothing, and nobody waits."""
    of_journal = bool(reports.metrics) and "metrics_proof" in changed
    return of_journal or ("log_complete_at" in changed and run.metrics_read is not None)


def _quarantine_busy_gpus(run: Run, reports: RunReports, now: datetime) -> None:
    """Quarantine the GPUs that another process used when the run should have started, or when it was over.

    This happens in the transaction of the fact, so that no pass places the job there again before it is known.
    """
    found = reports.facts[-1].document.get("busy") if reports.facts else None
    busy: dict[str, object] = dict(found) if isinstance(found, Mapping) else {}
    if not busy and run.refusal == GPU_BUSY:
        busy = dict.fromkeys(run.gpu_uuids)
    busy = {uuid: rows for uuid, rows in busy.items() if uuid in run.gpu_uuids}
    if busy:
        gpu_quarantine.quarantine(run.host_id, busy, run.message, now)


def _add_samples(run: Run, reports: RunReports, writes: PendingWrites, result: IntakeResult) -> set[str]:
    """Store how busy the run is, and since when it has been inactive."""
    if reports.samples:
        writes.samples.append(samples.row_of(run, reports.samples[-1], writes.now))
    changed, decide = samples.record_activity(run, reports.samples, bool(reports.log), writes.now)
    if decide:
        result.jobs.add(run.job_id)
    return changed


def _append(
    run: Run,
    log: Sequence[Frame | Gap],
    kept_on_host: bool,
    writes: PendingWrites,
    result: IntakeResult,
    unreadable: UnreadableFrames,
) -> set[str]:
    if kept_on_host:
        # The bytes are not acknowledged, so the host keeps them; `wanted` stops the pull.
        return set()
    tail = Tail(run.log_stored)
    for each in log:
        if isinstance(each, Gap):
            tail.skip(each)
            continue
        tail.add(each)
        if tail.unreadable is each and unreadable.exhausted(run.pk, each.start):
            tail.skip(Gap(each.start, each.end, "What the host sent could not be read."))
            tail.hole = False
    if tail.hole:
        result.pulls[run.pk] = tail.stored
    result.acks[run.pk] = tail.stored
    if tail.stored == run.log_stored:
        return set()
    writes.blocks += [(run.pk, block) for block in tail.blocks]
    for gap in tail.gaps:
        _add_gap(run, gap, writes)
    run.log_stored = tail.stored
    if run.log_stored - run.log_rolled >= segments.size():
        result.long_tails.add(run.pk)
    return {"log_stored"} | _raise_size(run)


def _add_gap(run: Run, gap: Gap, writes: PendingWrites) -> None:
    """Add a gap, or extend the last one: gaps that touch are one row, however often a program cuts its log."""
    reason = untrusted.text(gap.reason, 500)
    pending = [each for each in writes.gaps if each.run_id == run.pk]
    known = LogGap.objects.filter(run=run, start__lt=gap.start).order_by("-start")
    before = pending[-1] if pending else known.first()
    if before is None or (before.end, before.reason) != (gap.start, reason):
        writes.gaps.append(LogGap(run=run, start=gap.start, end=gap.end, reason=reason))
        return
    before.end = gap.end
    if not pending:
        LogGap.objects.filter(pk=before.pk).update(end=gap.end)


def _raise_size(run: Run) -> set[str]:
    """Raise the known size of the log to what is stored: a host cannot have less than it sent."""
    if run.log_size >= run.log_stored:
        return set()
    run.log_size = run.log_stored
    return {"log_size"}


def _end_of_log(run: Run, end: LogEnd, now: datetime) -> set[str]:
    size, digest = untrusted.whole_number(end.size, 0, facts.MAX_BYTES), untrusted.text(end.digest, 100)
    changed: dict[str, Any] = {}
    if run.log_complete_at is None and size is not None and size != run.log_size:
        changed["log_size"] = size
    if digest and not run.log_digest_host:
        changed |= {"log_digest_host": digest}
        if run.log_complete_at is not None:
            changed["prove_due_at"] = now
    for name, value in changed.items():
        setattr(run, name, value)
    return set(changed)


def _complete_log(run: Run, now: datetime) -> set[str]:
    """Mark the log complete when the run is closed and all its bytes are here. It is verified next."""
    if run.log_complete_at is not None or run.phase != RunPhase.CLOSED or run.log_stored < run.log_size:
        return set()
    if run.declared_lost_at is not None and run.proved_at is None:
        # An admin declared it lost; its host may have more of its log.
        return set()
    run.log_complete_at = run.prove_due_at = now
    return {"log_complete_at", "prove_due_at"}


def _closed_by_returned_host(run: Run, known: facts.ReportedFacts, now: datetime) -> set[str]:
    """Record that the host of a run that was declared lost has come back and has proved it closed."""
    if run.declared_lost_at is None or run.proved_at is not None or known.phase is not RunPhase.CLOSED:
        return set()
    run.proved_at = now
    run.log_size = max(run.log_size, known.log_size or 0)
    return {"proved_at", "log_size"}
