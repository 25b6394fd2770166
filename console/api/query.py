"""Reads parameters of an address: `?from=0&pageSize=100`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from console.api.errors import BadRequest


def whole_number(name: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise BadRequest(name, f"{name} must be a whole number of at least 0.")
    return int(value)


def page_size(query: Mapping[str, str], usual: int, most: int) -> int:
    """The `pageSize` that is asked for, within bounds; `usual` if none or 0 is asked for."""
    return min(whole_number("pageSize", query.get("pageSize") or "0") or usual, most)
