"""Lists in numbered pages: the rows of the page that an address asks for, and the addresses of the pages beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from django.core.paginator import Paginator
from django.db.models import Model, QuerySet

from console.presenters.jobs.job_filters import cursor_number

SIZE = 50
Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class NumberedPage(Generic[Row]):
    """One page of `total` rows. `next` and `previous` are addresses, or empty."""

    rows: tuple[Row, ...]
    total: int
    previous: str
    next: str


def numbered(found: QuerySet[Row], page: str, here: str, size: int = SIZE) -> NumberedPage[Row]:
    """`page`: what the address has as the number of the page; if it is no number, the first page is shown. `here`: the
    address without it."""
    pages = Paginator(found, size)
    shown = pages.get_page(cursor_number(page) or 1)
    beside = f"{here}{'&' if '?' in here else '?'}page="
    return NumberedPage(
        rows=tuple(shown),
        total=pages.count,
        previous=f"{beside}{shown.previous_page_number()}" if shown.has_previous() else "",
        next=f"{beside}{shown.next_page_number()}" if shown.has_next() else "",
    )
