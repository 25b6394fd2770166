"""The head of a column that sorts a list."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SortLink:
    """`aria`: how the column sorts the list now, or empty. `url`: sorts by it, or the other way round."""

    aria: str
    url: str


def next_order(current: str, name: str, first: str) -> tuple[str, str]:
    """(how the column sorts now, the order that a click asks for). An order is a column's name, with - for descending.

    `first`: the order that the first click asks for.
    """
    if current.lstrip("-") != name:
        return "", first
    return ("descending", name) if current.startswith("-") else ("ascending", f"-{name}")
