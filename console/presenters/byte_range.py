"""The header `Range` of a download: one range of bytes."""

from __future__ import annotations

import re

RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def chosen(header: str, total: int) -> tuple[int, int] | None:
    """The requested range [first, last). Everything if there is no valid range; None if it lies outside."""
    found = RANGE.fullmatch(header.replace(" ", ""))
    if found is None or found[1] == found[2] == "":
        return 0, total
    if not found[1]:
        count = min(int(found[2]), total)
        return (total - count, total) if count else None
    first = int(found[1])
    if found[2] and int(found[2]) < first:
        return 0, total
    if first >= total:
        return None
    return first, min(int(found[2]) + 1, total) if found[2] else total
