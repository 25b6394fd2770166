"""What hosts tell, written down: facts where they were still empty, log bytes where they continue what is stored.

One transaction per batch of one host. It holds the host's row and its lease token, so that a dispatcher which lost the
lease writes nothing any more. Only runs of that host are touched, whatever names come. Nothing is decided here: the
jobs concerned are marked as due in the same transaction, and advanced after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F

from agents import gpus
from agents.desk import Arrival, Fact, Forgotten, Frame, Gap, LogEnd, Sample, Taken
from agents.failpoints import failpoint
from agents.models import Host
from agents.statements import Change, Columns, Given, Read, Writing
from jobs import facts, samples, segments, snapshot, storage, strays
from jobs.models import Job, LogGap, Run, RunSample
from jobs.pieces import Block, Tail
from jobs.rules.states import TERMINAL, RunPhase

# A payload that cannot be read is asked for again so often; then its range is a gap like any other.
MOST_TRIES = 3
BUSY = "gpu_busy"
LOST = "The host was restarted and holds nothing of this run any more."

_RUN = Columns(Run, but=("order", "log_proof", "stop_reason"))
_lease = Read(
    lambda: (
        Host.every.select_for_update(no_key=True)
        .filter(pk=Given("host"), lease_token=Given("token"))
        .order_by()
        .values_list("pk")
    )
)
_runs = Read(
    lambda: (
        Run.objects.select_for_update(no_key=True)
        .filter(pk__among=Given("runs"), host=Given("host"))
        .order_by("pk")
        .values_list(*_RUN.names)
    )
)
_deleted = Read(
    lambda: (
        Run.objects.filter(pk__among=Given("runs"), job__deleted_at__isnull=False)
        .order_by()
        .values_list("pk")
    )
)
_are_due = Change(lambda: Job.every.filter(pk__among=Given("ids")), "due_at")


_run = Writing(lambda: Run.objects.filter(pk=Given("run")))


@dataclass(slots=True)
class Told:
    """What a batch brought: for the link, for the deciders, for open pages, for the store."""

    current: bool = True
    acks: dict[str, int] = field(default_factory=dict)
    pulls: dict[str, int] = field(default_factory=dict)
    jobs: set[int] = field(default_factory=set)
    logs: set[str] = field(default_factory=set)
    long_tails: set[str] = field(default_factory=set)
    check: bool = False

    def and_(self, more: Told) -> Told:
        """Both; what was told later counts."""
        return Told(
            self.current and more.current,
            self.acks | more.acks,
            self.pulls | more.pulls,
            self.jobs | more.jobs,
            self.logs | more.logs,
            self.long_tails | more.long_tails,
            self.check or more.check,
        )

    @property
    def taken(self) -> Taken:
        return Taken(self.acks, self.pulls, self.current)


@dataclass(slots=True)
class Mail:
    """What came for one run, in the order in which it came."""

    facts: list[Fact] = field(default_factory=list)
    log: list[Frame | Gap] = field(default_factory=list)
    end: LogEnd | None = None
    forgotten: bool = False
    samples: list[Sample] = field(default_factory=list)


@dataclass(slots=True)
class Tries:
    """How often a payload at an offset could not be read. In memory only: it bounds a quarrel, nothing else."""

    of: dict[tuple[str, int], int] = field(default_factory=dict)

    def exhausted(self, run: str, start: int) -> bool:
        if len(self.of) > 1_000:
            self.of.clear()
        self.of[run, start] = self.of.get((run, start), 0) + 1
        return self.of[run, start] >= MOST_TRIES


def take(host_id: int, token: int, arrivals: Sequence[Arrival], now: datetime, tries: Tries) -> Told:
    mail = sorted_by_run(arrivals)
    # Asked once, before: a batch is small, and the disk must not be asked under a lock.
    full = storage.low() if any(each.log for each in mail.values()) else False
    with transaction.atomic():
        failpoint("store.before")
        if not _hold_lease(host_id, token):
            return Told(current=False)
        told = _write(host_id, mail, full, now, tries)
    failpoint("store.after")
    return told


def sorted_by_run(arrivals: Sequence[Arrival]) -> dict[str, Mail]:
    mail: dict[str, Mail] = defaultdict(Mail)
    for arrival in arrivals:
        each = mail[facts.text(arrival.run, 80)]
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


def _hold_lease(host_id: int, token: int) -> bool:
    """The row stays locked: the token cannot change before this transaction is over."""
    return bool(_lease(host=host_id, token=token))


def _write(host_id: int, mail: dict[str, Mail], full: bool, now: datetime, tries: Tries) -> Told:
    speaks = [run for run, each in mail.items() if each.facts or each.end or each.forgotten]
    _lock_jobs(speaks)
    told = Told()
    store = Store(now)
    found = [_RUN.of(row) for row in _runs(runs=mail, host=host_id)]
    unknown = {run: each for run, each in mail.items() if each.facts}
    # Asked when the runs are locked, as they are while their job is deleted: what comes of its logs now is let go.
    over = [run.pk for run in found if run.phase == RunPhase.CLOSED and mail[run.pk].log]
    if over:
        for run_id in _deleted.column(runs=over):
            mail[run_id].log.clear()
    for run in found:
        unknown.pop(run.pk, None)
        _learn(run, mail[run.pk], full, store, told, tries)
    store.save()
    if unknown:
        strays.meet(host_id, {run: each.facts[-1].document for run, each in unknown.items()}, now)
    if told.jobs:
        _are_due(ids=told.jobs, due_at=now)
    if told.check:
        Host.every.filter(pk=host_id).update(due_at=now)
    return told


def _lock_jobs(runs: Sequence[str]) -> None:
    """Jobs before runs, as everybody does. A run's id begins with its job's."""
    ids = {int(head) for run in runs if (head := run.partition("-")[0]).isascii() and head.isdigit()}
    if ids:
        snapshot.hold_jobs(ids=[pk for pk in ids if pk < 2**63])


@dataclass(slots=True)
class Store:
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


def _learn(run: Run, mail: Mail, full: bool, store: Store, told: Told, tries: Tries) -> None:
    changed: set[str] = set()
    phase = run.phase
    for fact in mail.facts:
        known = facts.read(fact.document)
        if known is not None:
            changed |= facts.learn(run, known, store.now) | _proved(run, known, store.now)
    # Nothing is decided from a claim alone: what comes of it follows, or its deadline does.
    if run.phase != RunPhase.CLAIMED and (changed - {"log_size"} or run.phase != phase):
        told.jobs.add(run.job_id)
    if run.phase == RunPhase.CLOSED != phase:
        _keep_gpus_out(run, mail, store.now)
    # A full host looks free: until its checklist says otherwise, one job after the other would fail there.
    told.check |= "refusal" in changed and run.refusal == "disk_full"
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


def _keep_gpus_out(run: Run, mail: Mail, now: datetime) -> None:
    """Somebody was on its GPUs when it should have begun, or when it was over: nothing is placed there for now.

    In the transaction of the fact, so that nobody decides where the job goes next before that is known.
    """
    found = mail.facts[-1].document.get("busy") if mail.facts else None
    busy: dict[str, object] = dict(found) if isinstance(found, Mapping) else {}
    if not busy and run.refusal == BUSY:
        busy = dict.fromkeys(run.gpu_uuids)
    busy = {uuid: rows for uuid, rows in busy.items() if uuid in run.gpu_uuids}
    if busy:
        gpus.quarantine(run.host_id, busy, run.message, now)


def _busy(run: Run, mail: Mail, store: Store, told: Told) -> set[str]:
    """How busy it is, and since when it has been still."""
    if mail.samples:
        store.samples.append(samples.row_of(run, mail.samples[-1], store.now))
    changed, woke = samples.note(run, mail.samples, bool(mail.log), store.now)
    if woke:
        told.jobs.add(run.job_id)
    return changed


def _append(
    run: Run, log: Sequence[Frame | Gap], full: bool, store: Store, told: Told, tries: Tries
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


def _lose(run: Run, gap: Gap, store: Store) -> None:
    """One more gap, or one that goes on: however often a program cuts its log, nothing between is one row."""
    reason = facts.text(gap.reason, 500)
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
    size, digest = facts.whole(end.size, 0, facts.MOST_BYTES), facts.text(end.digest, 100)
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


def lost(asked: Sequence[str], now: datetime) -> set[int]:
    """Runs that their host once claimed and that are to be started there again: it holds nothing of them.

    Only a new boot proves that nothing of them lives either. Then they are over; their jobs are to be advanced.
    """
    gone = Run.objects.filter(pk__in=asked).exclude(phase__in=(RunPhase.CREATED, RunPhase.CLOSED))
    gone = gone.exclude(boot_id="").exclude(host__boot_id="").exclude(boot_id=F("host__boot_id"))
    found = list(gone.values_list("pk", flat=True))
    if not found:
        return set()
    with transaction.atomic():
        _lock_jobs(found)
        rows = Run.objects.select_for_update(no_key=True).filter(pk__in=found).order_by("pk")
        told, store = Told(), Store(now)
        for run in rows.exclude(phase=RunPhase.CLOSED).defer("order", "log_proof"):
            missing = [Gap(run.log_stored, run.log_size, LOST)] if run.log_stored < run.log_size else []
            closed = Fact({"phase": "closed", "why": "lost", "message": LOST})
            _learn(run, Mail([closed], [*missing]), False, store, told, Tries())
        store.save()
        Job.every.filter(pk__in=told.jobs).update(due_at=now)
    return told.jobs


def declare_lost(host_id: int, words: str, now: datetime) -> set[int]:
    """A person says that this host is gone: its open runs are over. The jobs concerned are to be advanced.

    If it comes back, it is told to end them first, and what it still has of their logs is fetched. The caller holds the
    host's row.
    """
    open_runs = Run.objects.filter(host=host_id).exclude(phase=RunPhase.CLOSED)
    return close_as_lost(list(open_runs.values_list("pk", flat=True)), words, now, declared=True)


def close_as_lost(found: Sequence[str], words: str, now: datetime, declared: bool = False) -> set[int]:
    """A person says that these runs are over, and why. `declared`: their host may still have them, if it comes back."""
    _lock_jobs(found)
    store, jobs = Store(now), set()
    lost = facts.read({"phase": "closed", "why": "lost", "message": words})
    rows = Run.objects.select_for_update(no_key=True).filter(pk__in=found).exclude(phase=RunPhase.CLOSED)
    for run in rows.order_by("pk").defer("order", "log_proof"):
        changed = facts.learn(run, lost, now) if lost else set()
        run.declared_lost_at = now if declared else None
        store.changed.append((run, changed | {"declared_lost_at"}))
        jobs.add(run.job_id)
    store.save()
    Job.every.filter(pk__in=jobs).update(due_at=now)
    return jobs


def _proved(run: Run, known: facts.Told, now: datetime) -> set[str]:
    """The host of a run that was given up has come back, and has closed it."""
    if run.declared_lost_at is None or run.proved_at is not None or known.phase is not RunPhase.CLOSED:
        return set()
    run.proved_at = now
    run.log_size = max(run.log_size, known.log_size or 0)
    return {"proved_at", "log_size"}


def give_up(host_id: int, why: str, now: datetime) -> None:
    """Nobody will ask this host again: what it still had of the logs of closed runs is missing for good, and says so.

    The caller holds the host's row.
    """
    unread = Run.objects.select_for_update(no_key=True).filter(host=host_id, log_complete_at=None)
    store = Store(now)
    for run in unread.filter(phase=RunPhase.CLOSED).order_by("pk").defer("order", "log_proof"):
        rest = Gap(run.log_stored, run.log_size, why)
        _learn(run, Mail(log=[rest]), False, store, Told(), Tries())
        if run.log_complete_at is None:  # nobody will prove any more what a person gave up
            run.log_complete_at = run.prove_due_at = now
            store.changed.append((run, {"log_complete_at", "prove_due_at"}))
    store.save()


def mark_jobs_of(host_id: int, now: datetime) -> set[int]:
    """The host went, came back, or was restarted: the jobs with open runs on it are due."""
    with transaction.atomic():
        open_runs = Run.objects.filter(host=host_id).exclude(phase=RunPhase.CLOSED)
        jobs = Job.every.filter(pk__in=open_runs.values("job")).exclude(state__in=TERMINAL).order_by("pk")
        ids = set(jobs.select_for_update(no_key=True).values_list("pk", flat=True))
        Job.every.filter(pk__in=ids).update(due_at=now)
    return ids
