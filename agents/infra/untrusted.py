"""Values that came from elsewhere, made safe to store: a value that makes no sense becomes None or an empty value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agents.infra.texts import HIDDEN_LETTER

_LAST_TIMESTAMP = datetime(9000, 1, 1, tzinfo=UTC).timestamp()


def text(value: object, max_length: int) -> str:
    """A string that every database can store: without NUL and lone surrogates, cut to `max_length` characters. And
    that every page can show: without hidden letters, which would change what stands beside it.
    """
    if not isinstance(value, str):
        return ""
    kept = value[:max_length].encode("utf-8", "replace").decode("utf-8", "replace").replace("\0", "\ufffd")
    clean = HIDDEN_LETTER.sub("\ufffd", kept)
    # A sentence of ours (texts.py) stays one.
    return value if clean == value else clean


def whole_number(value: object, minimum: int, maximum: int) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        return None
    return value


def number(value: object, maximum: float) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= maximum:
        return None
    return float(value) if math.isfinite(value) else None


def timestamp(value: object) -> datetime | None:
    """The time for the seconds since 1970 of a host's wall clock, which may show anything."""
    seconds = number(value, _LAST_TIMESTAMP)
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def mappings(value: object, max_length: int) -> list[Mapping[str, Any]]:
    """The first elements of a list; an element that is no mapping becomes an empty one."""
    return [mapping(element) for element in value[:max_length]] if isinstance(value, list) else []
