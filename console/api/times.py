"""Times as the API writes and reads them: RFC 3339 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_time(value: object) -> datetime | None:
    """The time in UTC. None when the value is not a time, has no time zone, or is out of range in UTC."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
        return None if found is None or found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
