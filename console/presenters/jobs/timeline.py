"""What happened to a job, newest first: filtered by whom and by what, grouped by attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.http import urlencode

from console.presenters import badges
from jobs.models import Job, Transition
from jobs.rules.lifecycle.history_kinds import ABOUT_THE_JOB, JOB, Kind
from jobs.rules.lifecycle.states import TERMINAL

SHOWN = 60
# Less than this is the time that a message takes, and the second that a clock may be off anywhere.
CLOCK_IS_OFF_S = 2.0
AGAIN = (Kind.RESTART, Kind.RETRY, Kind.PREEMPT, Kind.DRAIN)
WORDS: Mapping[str, tuple[str, str]] = {
    Kind.STATE: ("State", "play"),
    Kind.REPLICA: ("Replica", "ring"),
    Kind.RUN: ("Run", "terminal"),
    Kind.PLACEMENT: ("Placement", "tick"),
    Kind.WAIT: ("Waiting", "hourglass"),
    Kind.QUOTA: ("Quota", "hourglass"),
    Kind.RESTART: ("Restart", "ring"),
    Kind.RETRY: ("Retry", "ring"),
    Kind.DRAIN: ("Drain", "unplugged"),
    Kind.PREEMPT: ("Preemption", "hourglass"),
    Kind.FLAG: ("Flag", "note"),
    Kind.CANCEL: ("Cancel", "stop"),
    Kind.NOTICE: ("Notice", "note"),
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """What of it is asked for. Anything that does not exist is everything."""

    of: str = ""
    kind: str = ""
    use: str = ""
    span: str = ""
    sort: str = ""

    @classmethod
    def asked(cls, query: Mapping[str, str]) -> Chosen:
        kind = query.get("kind", "")
        of, use, span, sort = (query.get(name, "")[:80] for name in ("of", "use", "span", "sort"))
        return cls(of, kind if kind in WORDS else "", use, span, sort)

    @property
    def query(self) -> str:
        """As it stands in an address."""
        return self.but()

    @property
    def filtered(self) -> bool:
        return bool(self.of or self.kind)

    def but(self, **changes: str) -> str:
        """The same with something else chosen."""
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
    chosen: Chosen
    attempts: tuple[Attempt, ...]
    kinds: tuple[tuple[str, str], ...]
    subjects: tuple[str, ...]
    rest_url: str


def timeline(job: Job, replicas: Iterable[str], chosen: Chosen) -> Timeline:
    """The newest lines, by one query."""
    lines, following = page(job, chosen, None, SHOWN)
    return Timeline(
        chosen=chosen,
        attempts=by_attempt(lines),
        kinds=tuple((kind.value, WORDS[kind][0]) for kind in Kind),
        subjects=(JOB, *replicas),
        rest_url=older(job, chosen, following) if following else "",
    )


def page(job: Job, chosen: Chosen, before: int | None, size: int) -> tuple[tuple[Line, ...], int | None]:
    """So many lines, newest first, and the cursor of the next page."""
    rows = select(job, chosen).order_by("-id")
    if before is not None:
        rows = rows.filter(id__lt=before)
    found = list(rows[: size + 1])
    following = found[size - 1].pk if len(found) > size else None
    return tuple(_line(row) for row in found[:size]), following


def select(job: Job, chosen: Chosen) -> QuerySet[Transition]:
    rows = job.transitions.all()
    if chosen.of:
        rows = rows.filter(subject__in=ABOUT_THE_JOB if chosen.of == JOB else [chosen.of])
    return rows.filter(kind=chosen.kind) if chosen.kind else rows


def by_attempt(lines: Iterable[Line]) -> tuple[Attempt, ...]:
    return tuple(Attempt(number, tuple(of)) for number, of in groupby(lines, key=lambda line: line.attempt))


def older(job: Job, chosen: Chosen, before: int) -> str:
    query = "&".join(part for part in (chosen.query, f"before={before}") if part)
    return f"{reverse('job-history', args=[job.pk])}?{query}"


@dataclass(frozen=True, slots=True)
class Again:
    """Why something of it was started again the last time."""

    at: datetime
    cause: str


def started_again(job: Job) -> Again | None:
    """What a person wants to know who finds his job in another attempt, or younger than it should be."""
    if job.state in TERMINAL:
        return None
    row = job.transitions.filter(kind__in=AGAIN).order_by("-id").only("at", "cause").first()
    return Again(row.at, row.cause) if row else None


def clock_note(offset_s: float | None) -> str:
    if offset_s is None or abs(offset_s) < CLOCK_IS_OFF_S:
        return ""
    return f"its clock is {abs(offset_s):.0f} s {'ahead' if offset_s > 0 else 'behind'}"


def _line(row: Transition) -> Line:
    word, icon = WORDS.get(row.kind, WORDS[Kind.STATE])
    return Line(
        id=row.pk,
        at=row.at,
        host_at=row.host_at,
        clock_off=clock_note(row.host_offset_s),
        kind=row.kind,
        word=word,
        icon=icon,
        subject=row.subject,
        run=row.run,
        before=badges.word(row.from_state) if row.from_state else "",
        after=badges.word(row.to_state) if row.to_state else "over",
        attempt=row.attempt,
        cause=row.cause,
        actor=row.actor,
    )
