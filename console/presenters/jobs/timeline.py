"""The events of a job, newest first, filtered by subject, kind and attempt, and grouped by attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from console.presenters import badges
from console.presenters.jobs.job_query import JobQuery
from jobs.models import Job, Transition
from jobs.rules.lifecycle.history_kinds import ABOUT_THE_JOB, JOB, HistoryKind
from jobs.rules.lifecycle.states import TERMINAL

# Events on the overview, and on a page of all events.
SHOWN, PAGE_SIZE = 60, 200
# Smaller differences come from the time that a message takes, and from clocks that are a second off everywhere.
CLOCK_IS_OFF_S = 2.0
AGAIN = (HistoryKind.RESTART, HistoryKind.RETRY, HistoryKind.PREEMPT, HistoryKind.DRAIN)
WORDS: Mapping[str, tuple[str, str]] = {
    HistoryKind.STATE: (gettext_noop("State"), "play"),
    HistoryKind.REPLICA: (gettext_noop("Replica"), "ring"),
    HistoryKind.RUN: (gettext_noop("Run"), "terminal"),
    HistoryKind.PLACEMENT: (gettext_noop("Placement"), "tick"),
    HistoryKind.WAIT: (gettext_noop("Waiting"), "hourglass"),
    HistoryKind.QUOTA: (gettext_noop("Quota"), "hourglass"),
    HistoryKind.RESTART: (gettext_noop("Restart"), "ring"),
    HistoryKind.RETRY: (gettext_noop("Retry"), "ring"),
    HistoryKind.DRAIN: (gettext_noop("Drain"), "unplugged"),
    HistoryKind.PREEMPT: (gettext_noop("Preemption"), "hourglass"),
    HistoryKind.FLAG: (gettext_noop("Flag"), "note"),
    HistoryKind.CANCEL: (gettext_noop("Cancel"), "stop"),
    HistoryKind.NOTIFICATION: (gettext_noop("Notification"), "note"),
    HistoryKind.LABEL: (gettext_noop("Label"), "note"),
}


@dataclass(frozen=True, slots=True)
class Line:
    id: int
    at: datetime
    host_at: datetime | None
    clock_off: str
    kind: str
    word: str
    icon: str
    subject: str
    run: str
    before: str
    after: str
    attempt: int
    cause: str
    actor: str

    @property
    def of_job(self) -> bool:
        return self.subject in ABOUT_THE_JOB


@dataclass(frozen=True, slots=True)
class Attempt:
    number: int
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """`older_url`: of the lines before these. `filtered`: whether only some lines are asked for."""

    attempts: tuple[Attempt, ...]
    filtered: bool
    older_url: str


@dataclass(frozen=True, slots=True)
class Choices:
    """What the events can be filtered by: subjects, kinds and attempts."""

    subjects: tuple[str, ...]
    kinds: tuple[tuple[str, str], ...]
    attempts: tuple[int, ...]


def newest(job: Job, query: JobQuery) -> Timeline:
    """Return the newest events, of the chosen replica if one is chosen. Makes one query."""
    return _timeline(job, replace(query, of=query.of or query.replica), None, SHOWN)


def events(job: Job, query: JobQuery, before: int | None) -> Timeline:
    """Return a page of all events: the newest, or those before a cursor. Makes one query."""
    return _timeline(job, query, before, PAGE_SIZE)


def _timeline(job: Job, query: JobQuery, before: int | None, size: int) -> Timeline:
    rows = select(job, query.of, query.kind, query.attempt).order_by("-id")
    if before is not None:
        rows = rows.filter(id__lt=before)
    found = list(rows[: size + 1])
    following = found[size - 1].pk if len(found) > size else None
    lines = [_line(row) for row in found[:size]]
    return Timeline(
        attempts=by_attempt(lines),
        filtered=bool(query.of or query.kind or query.attempt),
        older_url=_older(job, query, following) if following else "",
    )


def choices(job: Job) -> Choices:
    """Return what the events of this job can be filtered by. Makes one query."""
    names = job.replicas.order_by("pool", "index").values_list("name", flat=True)
    return Choices(
        subjects=(JOB, *names),
        kinds=tuple((kind.value, gettext(WORDS[kind][0])) for kind in HistoryKind),
        attempts=tuple(range(1, job.attempt + 1)),
    )


def select(job: Job, of: str = "", kind: str = "", attempt: str = "") -> QuerySet[Transition]:
    """The events of a job: of itself or of one replica, of one kind, of one attempt."""
    rows = job.transitions.all()
    if of:
        rows = rows.filter(subject__in=ABOUT_THE_JOB if of == JOB else [of])
    if attempt:
        rows = rows.filter(attempt=int(attempt))
    return rows.filter(kind=kind) if kind else rows


def by_attempt(lines: Iterable[Line]) -> tuple[Attempt, ...]:
    return tuple(Attempt(number, tuple(of)) for number, of in groupby(lines, key=lambda line: line.attempt))


def _older(job: Job, query: JobQuery, before: int) -> str:
    asked = "&".join(part for part in (query.query, f"before={before}") if part)
    return f"{reverse('job-events', args=[job.pk])}?{asked}"


@dataclass(frozen=True, slots=True)
class LastRestart:
    """When and why a part of the job was last started again."""

    at: datetime
    cause: str


def last_restart(job: Job) -> LastRestart | None:
    """Return the last restart. It tells a person why a running job is in a later attempt, or younger than expected."""
    if job.state in TERMINAL:
        return None
    row = job.transitions.filter(kind__in=AGAIN).order_by("-id").only("at", "cause").first()
    return LastRestart(row.at, shown(row.cause)) if row else None


def clock_note(offset_s: float | None) -> str:
    if offset_s is None or abs(offset_s) < CLOCK_IS_OFF_S:
        return ""
    text = _("its clock is {seconds} s ahead") if offset_s > 0 else _("its clock is {seconds} s behind")
    return text.format(seconds=f"{abs(offset_s):.0f}")


def _line(row: Transition) -> Line:
    word, icon = WORDS.get(row.kind, WORDS[HistoryKind.STATE])
    return Line(
        id=row.pk,
        at=row.at,
        host_at=row.host_at,
        clock_off=clock_note(row.host_offset_s),
        kind=row.kind,
        word=gettext(word),
        icon=icon,
        subject=row.subject,
        run=row.run,
        before=badges.word(row.from_state) if row.from_state else "",
        after=badges.word(row.to_state) if row.to_state else _("over"),
        attempt=row.attempt,
        cause=shown(row.cause),
        actor=row.actor,
    )
