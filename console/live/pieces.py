"""Finds what has changed in a rendered part, so that not all of a large part is sent again.

A template marks an element that may be sent alone by `<TAG data-piece id="…"`. It has no element of its own tag inside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PIECE = re.compile(r'<([a-z]+) data-piece id="([^"]+)".*?</\1>', re.DOTALL)
# A browser changes a whole part sooner than so many single elements.
MOST = 300


@dataclass(frozen=True, slots=True)
class Cut:
    """A part as its pieces, by id, and the rest, which says where each of them stands."""

    rest: str
    pieces: Mapping[str, str]


def cut(html: str) -> Cut:
    pieces: dict[str, str] = {}

    def taken(found: re.Match[str]) -> str:
        pieces[found[2]] = found[0]
        return f"<{found[2]}>"

    return Cut(_PIECE.sub(taken, html), pieces)


def changes(before: Cut, after: Cut) -> str | None:
    """The pieces that are not as they were before. None where the whole part has to be sent."""
    if before.rest != after.rest:
        return None
    changed = [html for name, html in after.pieces.items() if before.pieces[name] != html]
    return "".join(changed) if len(changed) <= MOST else None
