"""Which jobs a list shows: its filters, its order, and one page of it. Pages lead on and back by the id of a job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from console.auth import access
from jobs.models import Job
from jobs.rules.lifecycle.states import TERMINAL, JobState

ACTIVE = frozenset(JobState) - TERMINAL
NEWEST = "-created"
# The column of each order; jobs with equal values are ordered by their ids. Each has an index.
_COLUMNS = {"created": "id", "name": "display_name", "gpus": "gpu_count"}
SORTS = (NEWEST, "created", "name", "-name", "-gpus", "gpus")
MAX_LABELS = 5
# An id has so many digits. So many of them at its beginning are taken for a part of an id.
ID_DIGITS, MIN_ID_PART = 19, 6


def cursor_number(text: str) -> int | None:
    """Read an id or a cursor from an address. Return None for a value that the database could not hold."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
    return value if value is not None and value < 2**63 else None


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters in the address of the page. An unknown value counts as no filter.

    `label`: `team=nlp`, or `team` for any value; several with spaces between them. `trials`: also the trials of studies
    that are over. `after`: show what follows this job in the order of the list; `ahead`: what comes before it.
    """

    state: str = ""
    text: str = ""
    owner: str = ""
    project: str = ""
    label: str = ""
    trials: bool = False
    sort: str = NEWEST
    after: int | None = None
    ahead: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        state, sort = query.get("state", ""), query.get("sort", "")
        # `before` is the cursor of earlier versions, whose only order was that of the newest first.
        after = cursor_number(query.get("after") or query.get("before", ""))
        return cls(
            state=state if state in ("active", *JobState) else "",
            text=query.get("text", "").strip()[:128],
            owner=query.get("owner", "").strip()[:150],
            project=query.get("project", "").strip()[:63],
            label=" ".join(re.split(r"[\s,]+", query.get("label", "").strip().lower())[:MAX_LABELS])[:640],
            trials=query.get("trials", "") == "1",
            sort=sort if sort in SORTS else NEWEST,
            after=after,
            ahead=None if after else cursor_number(query.get("ahead", "")),
        )

    @property
    def any(self) -> bool:
        return bool(self.state or self.text or self.owner or self.project or self.label)

    @property
    def without_trials(self) -> bool:
        """Whether trials that are over are left out, as long as nobody asks for them: a study of a thousand trials
        would fill twenty pages, and it has a page of its own. Whoever searches finds them too."""
        return not (self.trials or self.text or self.label)

    @property
    def unpaged(self) -> Filters:
        return replace(self, after=None, ahead=None)

    def at(self, side: str, job: str) -> Filters:
        """The same list, `after` or `ahead` of a job."""
        place = cursor_number(job)
        return replace(self.unpaged, after=place) if side == "after" else replace(self.unpaged, ahead=place)

    @property
    def labels(self) -> Sequence[tuple[str, str | None]]:
        """The keys that are asked for, each with its value, or with None for any value."""
        pairs = (each.partition("=") for each in self.label.split())
        return [(key, value if equals else None) for key, equals, value in pairs]

    def query(self, **changes: object) -> str:
        """The address of the same list with these changes, from its beginning."""
        asked = {
            "state": self.state,
            "text": self.text,
            "owner": self.owner,
            "project": self.project,
            "label": self.label,
            "trials": "1" if self.trials else "",
            "sort": "" if self.sort == NEWEST else self.sort,
        }
        return urlencode({name: value for name, value in {**asked, **changes}.items() if value})

    @property
    def elsewhere(self) -> str:
        """The address of the same list of all projects. It says so, because a bare one leads to the chosen project."""
        return "?" + (self.query(project="") or "project=")

    @property
    def none(self) -> str:
        """The address of the list without filters."""
        return "?project=" if self.project else ""

    @property
    def address(self) -> str:
        """The address of this page of the list."""
        return self.query(after=self.after, ahead=self.ahead)


@dataclass(frozen=True, slots=True)
class Page:
    """The ids of one page, in the order of the list. `follow` and `precede`: whether there are others."""

    ids: Sequence[int]
    follow: bool
    precede: bool


def found(user: User, filters: Filters) -> QuerySet[Job]:
    """The jobs that the person may see and the filters match, on all pages and in no order."""
    rows = access.visible(user, Job.objects.order_by())
    if filters.project:
        rows = rows.filter(project__name=filters.project)
    if filters.state:
        rows = rows.filter(state__in=ACTIVE if filters.state == "active" else [filters.state])
    if filters.without_trials and filters.state != "active":
        rows = rows.filter(Q(trial="") | Q(state__in=ACTIVE))
    if filters.owner:
        rows = rows.filter(owner_name=filters.owner)
    if filters.text:
        rows = rows.filter(Q(display_name__icontains=filters.text) | _with_id(filters.text))
    for key, value in filters.labels:
        # A job has a key once, so this doubles no row.
        named = {"label_rows__key": key} | ({} if value is None else {"label_rows__value": value})
        rows = rows.filter(**named)
    return rows


def _with_id(text: str) -> Q:
    """The job with this id, or the jobs whose ids begin with it."""
    number = cursor_number(text)
    if number is None:
        return Q(pk__in=())
    if not MIN_ID_PART <= len(text) < ID_DIGITS:
        return Q(pk=number)
    unit = 10 ** (ID_DIGITS - len(text))
    return Q(pk__gte=number * unit, pk__lt=(number + 1) * unit)


def page(user: User, filters: Filters, size: int) -> Page:
    rows = found(user, filters)
    cursor = filters.after or filters.ahead
    at = _place(user, filters, cursor) if cursor else None
    if at is None:
        ids = _first(rows, filters, False, size + 1)
        return Page(ids[:size], len(ids) > size, False)
    back = filters.ahead is not None
    ids = _beyond(rows, filters, back, at, size + 1)
    if not back:
        return Page(ids[:size], len(ids) > size, True)
    if len(ids) <= size:
        return page(user, filters.unpaged, size)
    return Page(ids[size - 1 :: -1], True, True)


def _place(user: User, filters: Filters, cursor: int) -> tuple[object, int] | None:
    """Where in the order this job stands: its value and its id. The job may be deleted by now."""
    column = _column(filters)
    if column == "id":
        return cursor, cursor
    rows = access.visible(user, Job.every.filter(pk=cursor)).order_by()
    return rows.values_list(column, "id").first()


def _beyond(
    rows: QuerySet[Job], filters: Filters, back: bool, at: tuple[object, int], size: int
) -> list[int]:
    """The ids that follow a place. Each of these questions is one range of an index."""
    column, way = _column(filters), "lt" if _descends(filters, back) else "gt"
    value, pk = at
    if column == "id":
        return _first(rows.filter(**{f"id__{way}": pk}), filters, back, size)
    equal = _first(rows.filter(**{column: value, f"id__{way}": pk}), filters, back, size)
    rest = size - len(equal)
    return equal + _first(rows.filter(**{f"{column}__{way}": value}), filters, back, rest) if rest else equal


def _first(rows: QuerySet[Job], filters: Filters, back: bool, size: int) -> list[int]:
    sign = "-" if _descends(filters, back) else ""
    columns = dict.fromkeys((_column(filters), "id"))
    ordered = rows.order_by(*(f"{sign}{column}" for column in columns))
    return list(ordered.values_list("pk", flat=True)[:size])


def _column(filters: Filters) -> str:
    return _COLUMNS[filters.sort.lstrip("-")]


def _descends(filters: Filters, back: bool) -> bool:
    return filters.sort.startswith("-") != back
