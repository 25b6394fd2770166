"""What one run learns from what came for it: facts where they were still empty, log bytes where they continue what is
stored. Gathered over a batch, written together. The caller holds the runs' rows, and their jobs' where facts came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agents.hosts import gpu_quarantine
from agents.infra import untrusted
from agents.infra.failpoints import failpoint
from agents.infra.sql import Parameter, UpdateStatements
from agents.links.control_plane import Accepted, Fact, Frame, Gap, LogEnd, Sample
from jobs.host_sync import facts, samples
from jobs.lifecycle import snapshot
from jobs.logs import segments
from jobs.logs.pieces import Block, Tail
from jobs.models import LogGap, Run, RunSample
from jobs.rules.lifecycle.states import RunPhase

# A payload that cannot be read is asked for again so often; then its range is a gap like any other.
MAX_TRIES = 3
BUSY = "gpu_busy"

_run = UpdateStatements(lambda: Run.objects.filter(pk=Parameter("run")))


@dataclass(slots=True)
class IntakeResult:
    """What a batch brought: for the link, for the deciders, for open pages, for the store."""

    current: bool = True
    acks: dict[str, int] = field(default_factory=dict)
    pulls: dict[str, int] = field(default_factory=dict)
    jobs: set[int] = field(default_factory=set)
    logs: set[str] = field(default_factory=set)
    long_tails: set[str] = field(default_factory=set)

    def and_(self, more: IntakeResult) -> IntakeResult:
        """Both; what was told later counts."""
        return IntakeResult(
            self.current and more.current,
            self.acks | more.acks,
            self.pulls | more.pulls,
            self.jobs | more.jobs,
            self.logs | more.logs,
            self.long_tails | more.long_tails,
        )

    @property
    def taken(self) -> Accepted:
        return Accepted(self.acks, self.pulls, self.current)


@dataclass(slots=True)
class RunReports:
    """What came for one run, in the order in which it came."""

    facts: list[Fact] = field(default_factory=list)
    log: list[Frame | Gap] = field(default_factory=list)
    end: LogEnd | None = None
    forgotten: bool = False
    samples: list[Sample] = field(default_factory=list)


@dataclass(slots=True)
class UnreadableFrames:
    """How often a payload at an offset could not be read. In memory only: it bounds a quarrel, nothing else."""

    of: dict[tuple[str, int], int] = field(default_factory=dict)

    def exhausted(self, run: str, start: int) -> bool:
        if len(self.of) > 1_000:
            self.of.clear()
        self.of[run, start] = self.of.get((run, start), 0) + 1
        return self.of[run, start] >= MAX_TRIES


def lock_jobs(runs: Sequence[str]) -> None:
    """Jobs before runs, as everybody does. A run's id begins with its job's."""
    ids = {int(head) for run in runs if (head := run.partition("-")[0]).isascii() and head.isdigit()}
    if ids:
        snapshot.hold_jobs(ids=[pk for pk in ids if pk < 2**63])


@dataclass(slots=True)
class PendingWrites:
    """What is to be written, gathered over the runs of a batch."""

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
    run: Run, mail: RunReports, full: bool, store: PendingWrites, told: IntakeResult, tries: UnreadableFrames
) -> None:
    changed: set[str] = set()
    phase = run.phase
    for fact in mail.facts:
        known = facts.read(fact.document)
        if known is not None:
            changed |= facts.fill_facts(run, known, store.now) | _proved(run, known, store.now)
    # Nothing is decided from a claim alone: what comes of it follows, or its deadline does.
    if run.phase != RunPhase.CLAIMED and (changed - {"log_size"} or run.phase != phase):
        told.jobs.add(run.job_id)
    if run.phase == RunPhase.CLOSED != phase:
        _keep_gpus_out(run, mail, store.now)
    if mail.end is not None:
        changed |= _end_of_log(run, mail.end, store.now)
    if mail.log:
        changed |= _append(run, mail.log, full, store, told, tries)
    changed |= _completed(run, store.now)
    if mail.samples or mail.log:
        changed |= _busy(run, mail, store, told)
    if mail.forgotten and run.phase == RunPhase.CLOSED and run.forgotten_at is None:
        run.forgotten_at = store.now
        changed.add("forgotten_at")
    if changed:
        store.changed.append((run, changed))
    if changed & {"log_stored", "log_size", "log_complete_at"}:
        told.logs.add(run.pk)


def _keep_gpus_out(run: Run, mail: RunReports, now: datetime) -> None:
    """Somebody was on its GPUs when it should have begun, or when it was over: nothing is placed there for now.

    In the transaction of the fact, so that nobody decides where the job goes next before that is known.
    """
    found = mail.facts[-1].document.get("busy") if mail.facts else None
    busy: dict[str, object] = dict(found) if isinstance(found, Mapping) else {}
    if not busy and run.refusal == BUSY:
        busy = dict.fromkeys(run.gpu_uuids)
    busy = {uuid: rows for uuid, rows in busy.items() if uuid in run.gpu_uuids}
    if busy:
        gpu_quarantine.quarantine(run.host_id, busy, run.message, now)


def _busy(run: Run, mail: RunReports, store: PendingWrites, told: IntakeResult) -> set[str]:
    """How busy it is, and since when it has been still."""
    if mail.samples:
        store.samples.append(samples.row_of(run, mail.samples[-1], store.now))
    changed, woke = samples.note(run, mail.samples, bool(mail.log), store.now)
    if woke:
        told.jobs.add(run.job_id)
    return changed


def _append(
    run: Run,
    log: Sequence[Frame | Gap],
    full: bool,
    store: PendingWrites,
    told: IntakeResult,
    tries: UnreadableFrames,
) -> set[str]:
    if full:
        return set()  # not acknowledged, so the host keeps it; `wanted` stops the pull
    tail = Tail(run.log_stored)
    for each in log:
        if isinstance(each, Gap):
            tail.skip(each)
            continue
        tail.add(each)
        if tail.unreadable is each and tries.exhausted(run.pk, each.start):
            tail.skip(Gap(each.start, each.end, "What the host sent could not be read."))
            tail.hole = False
    if tail.hole:
        told.pulls[run.pk] = tail.stored
    told.acks[run.pk] = tail.stored
    if tail.stored == run.log_stored:
        return set()
    store.blocks += [(run.pk, block) for block in tail.blocks]
    for gap in tail.gaps:
        _lose(run, gap, store)
    run.log_stored = tail.stored
    if run.log_stored - run.log_rolled >= segments.size():
        told.long_tails.add(run.pk)
    return {"log_stored"} | _grow(run)


def _lose(run: Run, gap: Gap, store: PendingWrites) -> None:
    """One more gap, or one that goes on: however often a program cuts its log, nothing between is one row."""
    reason = untrusted.text(gap.reason, 500)
    told = [each for each in store.gaps if each.run_id == run.pk]
    known = LogGap.objects.filter(run=run, start__lt=gap.start).order_by("-start")
    before = told[-1] if told else known.first()
    if before is None or (before.end, before.reason) != (gap.start, reason):
        store.gaps.append(LogGap(run=run, start=gap.start, end=gap.end, reason=reason))
        return
    before.end = gap.end
    if not told:
        LogGap.objects.filter(pk=before.pk).update(end=gap.end)


def _grow(run: Run) -> set[str]:
    """A host cannot have less than what came from it."""
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


def _completed(run: Run, now: datetime) -> set[str]:
    """Closed, and everything that the host had is here: the log is complete, and to be proved."""
    if run.log_complete_at is not None or run.phase != RunPhase.CLOSED or run.log_stored < run.log_size:
        return set()
    if run.declared_lost_at is not None and run.proved_at is None:
        return set()  # a person closed it; its host may have more of its log
    run.log_complete_at = run.prove_due_at = now
    return {"log_complete_at", "prove_due_at"}


def _proved(run: Run, known: facts.ReportedFacts, now: datetime) -> set[str]:
    """The host of a run that was given up has come back, and has closed it."""
    if run.declared_lost_at is None or run.proved_at is not None or known.phase is not RunPhase.CLOSED:
        return set()
    run.proved_at = now
    run.log_size = max(run.log_size, known.log_size or 0)
    return {"proved_at", "log_size"}
