"""Pages of Google's lists: `pageSize`, `pageToken`, `nextPageToken`."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from rest_framework.request import Request

from console.api.errors import BadRequest

PAGE_SIZE, MAX_PAGE_SIZE = 100, 1000
Row = TypeVar("Row", bound=Model)


def page_size(request: Request) -> int:
    given = request.query_params.get("pageSize") or request.query_params.get("page_size") or "0"
    if not re.fullmatch(r"[0-9]{1,9}", given):
        raise BadRequest("page_size", f"pageSize must be a whole number of at least 0, not {given!r}.")
    return min(int(given) or PAGE_SIZE, MAX_PAGE_SIZE)


def page_token(request: Request, text: str) -> int | None:
    """The id after which the page begins. None for the first page. `text`: the filter, for which a token is valid."""
    given = request.query_params.get("pageToken") or request.query_params.get("page_token") or ""
    if not given:
        return None
    try:
        decoded = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode("ascii")
    except ValueError:
        decoded = ""
    last, _, mark = decoded.partition(".")
    if not re.fullmatch(r"[0-9]{1,19}", last) or mark != _mark(text):
        raise BadRequest("page_token", "The page token does not belong to this filter.")
    return int(last)


def token_after(last: int, text: str) -> str:
    """A page token: where the next page begins, and for which filter it is valid."""
    return base64.urlsafe_b64encode(f"{last}.{_mark(text)}".encode()).decode().rstrip("=")


def newest_first(request: Request, rows: QuerySet[Row], text: str = "") -> tuple[list[Row], dict[str, Any]]:
    """The rows of the page that is asked for, and the token of the next one as a part of the answer."""
    size, before = page_size(request), page_token(request, text)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(rows.order_by("-pk")[: size + 1])
    more = len(found) > size
    return found[:size], {"nextPageToken": token_after(found[size - 1].pk, text)} if more else {}


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
