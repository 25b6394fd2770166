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
from console.presenters.jobs.event_groups import Group, Line, fold
from console.presenters.jobs.job_filters import cursor_number
from console.presenters.jobs.job_query import JobQuery
from jobs.models import Job, Transition
from jobs.rules.lifecycle.history_kinds import ABOUT_THE_JOB, JOB, HistoryKind
from jobs.rules.lifecycle.states import TERMINAL

# Groups of events on the overview, and on a page of all events; and how many events are read for one page at most.
SHOWN, PAGE_SIZE, MOST = 20, 100, 3_000
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
    HistoryKind.MOVE: (gettext_noop("Moved in the queue"), "note"),
    HistoryKind.OUTPUTS: (gettext_noop("Outputs"), "note"),
    HistoryKind.PREPARATION: (gettext_noop("Preparation"), "hourglass"),
}


@dataclass(frozen=True, slots=True)
class Attempt:
    number: int
    groups: tuple[Group, ...]

    @property
    def lines(self) -> tuple[Line, ...]:
        return tuple(line for group in self.groups for line in group.lines)


@dataclass(frozen=True, slots=True)
class Timeline:
    """`older_url`: of the events before these. `filtered`: whether only some events are asked for.

    `here`: the address of this page of events, to which `open=ID` can be added.
    """

    attempts: tuple[Attempt, ...]
    filtered: bool
    older_url: str
    here: str


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
    # Enough that a start and an end of all replicas fit on one page.
    found = list(rows[: min(MOST, 2 * size + 4 * job.replica_count) + 1])
    groups, taken = fold((_line(row) for row in found[:MOST]), size, cursor_number(query.open))
    rest = _address(job, query, found[taken - 1].pk) if taken < len(found) else ""
    here = _address(job, replace(query, open=""), before)
    return Timeline(by_attempt(groups), bool(query.of or query.kind or query.attempt), rest, here)


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


def by_attempt(groups: Iterable[Group]) -> tuple[Attempt, ...]:
    parted = groupby(groups, key=lambda group: group.newest.attempt)
    return tuple(Attempt(number, tuple(of)) for number, of in parted)


def _address(job: Job, query: JobQuery, before: int | None) -> str:
    """The address of a page of events. Ends with ? or &, so that more can follow."""
    asked = query.query_with(before=str(before or ""))
    return f"{reverse('job-events', args=[job.pk])}?{asked}{'&' if asked else ''}"


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
        of_job=row.subject in ABOUT_THE_JOB,
        run=row.run,
        before=badges.word(row.from_state) if row.from_state else "",
        after=badges.word(row.to_state) if row.to_state else _("over"),
        attempt=row.attempt,
        said=row.cause,
        actor=row.actor,
    )
