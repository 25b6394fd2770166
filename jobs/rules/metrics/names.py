"""Names of metrics: chosen by programs, shown to people. Pure."""

from __future__ import annotations

import re

MAX_NAME = 200
# Control characters, line separators, and what turns the direction of a text; halves of characters.
_UNREADABLE = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]+"
)


def clean_name(found: object) -> str:
    """The name as it may be stored and shown; "" for what is none."""
    if not isinstance(found, str):
        return ""
    return " ".join(_UNREADABLE.sub(" ", found[: MAX_NAME * 4]).split())[:MAX_NAME]
