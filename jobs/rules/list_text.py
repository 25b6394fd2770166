"""Lists in sentences: the first few items, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence

from agents.infra.texts import join, said

MAX_ITEMS = 8


def list_text(items: Sequence[str], at_most: int = MAX_ITEMS) -> str:
    """`gpu-01, gpu-02 and 3 more`."""
    shown, left_out = join(", ", items[:at_most]), len(items) - at_most
    return said("{items} and {number} more", items=shown, number=left_out) if left_out > 0 else shown


def more_text(items: Sequence[object], at_most: int = MAX_ITEMS) -> str:
    """` and 3 more`, with its space; empty where all items are shown."""
    left_out = len(items) - at_most
    return f" and {left_out} more" if left_out > 0 else ""
