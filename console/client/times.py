"""Times, as REST has them. They are compared with the console's clock, which each answer tells: that of this machine
may be wrong."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from .errors import NOT_UNDERSTOOD, ClientError
from .text import duration

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_FRACTION = re.compile(r"\.(\d{1,6})\d*")


def parsed(value: object) -> datetime | None:
    """A time as REST writes it. None if it is not one. Before Python 3.11, `fromisoformat` reads fewer forms."""
    if not isinstance(value, str):
        return None
    plain = _FRACTION.sub(lambda found: "." + found[1].ljust(6, "0"), value.replace("Z", "+00:00"))
    try:
        found = datetime.fromisoformat(plain)
    except ValueError:
        return None
    return found if found.tzinfo else None


def ago(value: object, now: datetime) -> str:
    """How long ago that was, in words. Empty if there is no time."""
    at = parsed(value)
    return duration((now - at).total_seconds()) if at else ""


def between(begin: object, end: object, now: datetime) -> str:
    """The time from `begin` to `end`, or to now where there is no end yet."""
    first, last = parsed(begin), parsed(end) or now
    return duration((last - first).total_seconds()) if first else ""


def local(value: object) -> str:
    """The time in the zone of this machine."""
    at = parsed(value)
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if at else ""


def since(text: str, now: datetime) -> datetime:
    """What a person means by `10m`, `2h`, or a time."""
    span = _SPAN.fullmatch(text)
    if span:
        return now - timedelta(seconds=float(span[1]) * _UNITS[span[2]])
    at = parsed(text) or _zoneless(text)
    if at is None:
        raise ClientError(
            f"{text!r} is no time.",
            "Give one such as 30s, 10m, 2h, 1d, or 2026-11-23T15:00:00Z.",
            NOT_UNDERSTOOD,
        )
    return at


def _zoneless(text: str) -> datetime | None:
    """A time without a zone is one of this machine's zone."""
    try:
        return datetime.fromisoformat(text).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None
