"""The history of a job, newest first, filtered by subject and kind, and grouped by attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _

from console.presenters import badges
from console.presenters.jobs.job_filters import cursor_number
from console.presenters.sentences import shown
from jobs.models import Job, Transition
from jobs.rules.lifecycle.history_kinds import ABOUT_THE_JOB, JOB, HistoryKind
from jobs.rules.lifecycle.states import TERMINAL

SHOWN = 60
# Lines of a page of the whole history.
HISTORY_SIZE = 200
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
class TimelineFilter:
    """The filters in the address of the page. A value that does not exist counts as no filter."""

    of: str = ""
    kind: str = ""
    use: str = ""
    span: str = ""
    sort: str = ""

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> TimelineFilter:
        kind = query.get("kind", "")
        of, use, span, sort = (query.get(name, "")[:80] for name in ("of", "use", "span", "sort"))
        return cls(of, kind if kind in WORDS else "", use, span, sort)

    @property
    def query(self) -> str:
        """The query of an address with these filters."""
        return self.query_with()

    @property
    def filtered(self) -> bool:
        return bool(self.of or self.kind)

    def query_with(self, **changes: str) -> str:
        """Return the query of an address with these filters, some of them changed."""
        names = ("of", "kind", "use", "span", "sort")
        pairs = {**{name: getattr(self, name) for name in names}, **changes}
        return urlencode({name: value for name, value in pairs.items() if value})


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
    filter: TimelineFilter
    attempts: tuple[Attempt, ...]
    kinds: tuple[tuple[str, str], ...]
    subjects: tuple[str, ...]
    rest_url: str


def timeline(job: Job, replicas: Iterable[str], filter: TimelineFilter) -> Timeline:
    """Return the newest lines. Makes one query."""
    lines, following = page(job, filter, None, SHOWN)
    return Timeline(
        filter=filter,
        attempts=by_attempt(lines),
        kinds=tuple((kind.value, gettext(WORDS[kind][0])) for kind in HistoryKind),
        subjects=(JOB, *replicas),
        rest_url=older(job, filter, following) if following else "",
    )


def page(
    job: Job, filter: TimelineFilter, before: int | None, size: int
) -> tuple[tuple[Line, ...], int | None]:
    """Return at most `size` lines, newest first, and the cursor of the next page."""
    rows = select(job, filter).order_by("-id")
    if before is not None:
        rows = rows.filter(id__lt=before)
    found = list(rows[: size + 1])
    following = found[size - 1].pk if len(found) > size else None
    return tuple(_line(row) for row in found[:size]), following


def history_page(job: Job, query: Mapping[str, str]) -> dict[str, object]:
    """Return what the page of the whole history shows at this query: the newest lines, or those before its cursor."""
    filter = TimelineFilter.from_query(query)
    before = cursor_number(query.get("before", ""))
    lines, following = page(job, filter, before, HISTORY_SIZE)
    rest = older(job, filter, following) if following else ""
    return {"lines": lines, "attempts": by_attempt(lines), "rest_url": rest}


def select(job: Job, filter: TimelineFilter) -> QuerySet[Transition]:
    rows = job.transitions.all()
    if filter.of:
        rows = rows.filter(subject__in=ABOUT_THE_JOB if filter.of == JOB else [filter.of])
    return rows.filter(kind=filter.kind) if filter.kind else rows


def by_attempt(lines: Iterable[Line]) -> tuple[Attempt, ...]:
    return tuple(Attempt(number, tuple(of)) for number, of in groupby(lines, key=lambda line: line.attempt))


def older(job: Job, filter: TimelineFilter, before: int) -> str:
    query = "&".join(part for part in (filter.query, f"before={before}") if part)
    return f"{reverse('job-history', args=[job.pk])}?{query}"


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
