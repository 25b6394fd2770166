"""Values in CSV files that spreadsheets open."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

# With these, a spreadsheet takes a cell for a formula. It skips a tab or a line end before one.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")


def plain(text: str) -> str:
    """The text with a quote before what a spreadsheet would run as a formula."""
    return f"'{text}" if text.startswith(_FORMULAS) else text


def lines(rows: Iterable[Iterable[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()
