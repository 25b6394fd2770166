"""The events of a job, newest first, filtered by subject, kind and attempt, and grouped by attempt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby

from django.db.models import Count, Max, QuerySet
from django.urls import reverse
from django.utils.translation import gettext

from agents.infra.sentences import shown
from agents.infra.shared_answers import SharedAnswers
from agents.infra.sql import Parameter, SelectStatement
from console.presenters.jobs.event_groups import COLUMNS, WORDS, Group, Line, fold
from console.presenters.jobs.job_filters import cursor_number
from console.presenters.jobs.job_query import JobQuery
from jobs.models import Job, Transition
from jobs.rules.lifecycle.history_kinds import ABOUT_THE_JOB, JOB, HistoryKind
from jobs.rules.lifecycle.states import TERMINAL

# Groups of events on the overview, and on a page of all events; and how many events are read for one page at most.
SHOWN, PAGE_SIZE, MOST = 20, 100, 3_000
AGAIN = (HistoryKind.RESTART, HistoryKind.RETRY, HistoryKind.PREEMPT, HistoryKind.DRAIN)


# The newest events of so many jobs are kept, for so long, as long as no event was added or taken away.
MOST_KEPT, KEPT = 16, timedelta(minutes=10)
_count = SelectStatement(
    lambda: (
        Transition.objects.filter(job=Parameter("job"))
        .order_by()
        .values("job")
        .annotate(newest=Max("pk"), all=Count("pk"))
        .values_list("newest", "all")
    )
)


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


_recent: SharedAnswers[tuple[int, JobQuery], Timeline] = SharedAnswers(timedelta(0), MOST_KEPT, KEPT)


def newest(job: Job, query: JobQuery) -> Timeline:
    """Return the newest events, of the chosen replica if one is chosen. Makes one query, and one more after an event:
    then those of a thousand replicas are read and folded again."""
    asked = replace(query, of=query.of or query.replica)
    return _recent.get(
        (job.pk, asked), lambda: _timeline(job, asked, None, SHOWN), lambda: tuple(_count(job=job.pk))
    )


def events(job: Job, query: JobQuery, before: int | None) -> Timeline:
    """Return a page of all events: the newest, or those before a cursor. Makes one query."""
    return _timeline(job, query, before, PAGE_SIZE)


def _timeline(job: Job, query: JobQuery, before: int | None, size: int) -> Timeline:
    rows = select(job, query.of, query.kind, query.attempt).order_by("-id")
    if before is not None:
        rows = rows.filter(id__lt=before)
    # Enough that a start and an end of all replicas fit on one page.
    most = min(MOST, 2 * size + 4 * job.replica_count) + 1
    found = [Line(*columns) for columns in rows.values_list(*COLUMNS)[:most]]
    groups, taken = fold(found[:MOST], size, cursor_number(query.open))
    rest = _address(job, query, found[taken - 1].id) if taken < len(found) else ""
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
