"""One page of a list in which the newest comes first, and the way to the pages beside it.

The address names the row at the edge: `before=ID` has what is older than it, `ahead=ID` what is newer. So each question
is one range of an index, and rows that are added meanwhile move nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.db.models import Model, QuerySet

from console.presenters.jobs.job_filters import cursor_number

Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class Cut(Generic[Row]):
    """`previous` and `next`: what the addresses of the pages beside it ask for; empty where there is none."""

    rows: Sequence[Row]
    previous: Mapping[str, str]
    next: Mapping[str, str]


def cut(rows: QuerySet[Row], query: Mapping[str, str], size: int) -> Cut[Row]:
    before, ahead = (cursor_number(query.get(name, "")) for name in ("before", "ahead"))
    if before is None and ahead is not None:
        newer = list(rows.filter(pk__gt=ahead).order_by("pk")[: size + 1])
        if len(newer) > size:
            return Cut(newer[size - 1 :: -1], _edge("ahead", newer[size - 1]), _edge("before", newer[0]))
        # The first page is whole, whatever was added or removed meanwhile.
    older = rows if before is None else rows.filter(pk__lt=before)
    found = list(older.order_by("-pk")[: size + 1])
    if before is not None and not found:
        return cut(rows, {}, size)
    previous = {} if before is None else _edge("ahead", found[0])
    return Cut(found[:size], previous, _edge("before", found[size - 1]) if len(found) > size else {})


def _edge(name: str, row: Model) -> Mapping[str, str]:
    return {name: str(row.pk)}
