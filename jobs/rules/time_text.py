"""A length of time as people say it. In documents and in the API it is a Duration (spec/json_fields.py)."""

from __future__ import annotations

from agents.infra.texts import said


def time_text(seconds: float) -> str:
    """`8 s`, `2 min`, `3 h`, `3 h 20 min`: rounded, and never nothing."""
    whole = max(1, round(seconds))
    if whole < 60:
        return said("{number} s", number=whole)
    minutes = round(whole / 60)
    if minutes < 60:
        return said("{number} min", number=minutes)
    hours, rest = divmod(minutes, 60)
    if not rest:
        return said("{number} h", number=hours)
    return said("{hours} h {minutes} min", hours=hours, minutes=rest)
