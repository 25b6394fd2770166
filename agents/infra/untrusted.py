"""Values that came from elsewhere, made safe to keep: whatever cannot be meant becomes None or an empty text."""

from __future__ import annotations

import math
from datetime import UTC, datetime

_LAST_MOMENT = datetime(9000, 1, 1, tzinfo=UTC).timestamp()


def text(value: object, most: int) -> str:
    """A string that every database can store: no NUL, no half characters, not longer than `most`."""
    if not isinstance(value, str):
        return ""
    return value[:most].encode("utf-8", "replace").decode("utf-8", "replace").replace("\0", "\ufffd")


def whole_number(value: object, least: int, most: int) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        return None
    return value


def number(value: object, most: float) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
        return None
    return float(value) if math.isfinite(value) else None


def timestamp(value: object) -> datetime | None:
    """Seconds of a host's wall clock, which may show anything."""
    seconds = number(value, _LAST_MOMENT)
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
