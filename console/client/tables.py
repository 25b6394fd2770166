"""Tables for people, JSON for programs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from .text import RESET, as_json, cut, harmless, width

COLOURS = {
    "good": "\x1b[32m",
    "bad": "\x1b[31m",
    "warn": "\x1b[33m",
    "busy": "\x1b[36m",
    "muted": "\x1b[2m",
    "bold": "\x1b[1m",
}
TONES = {
    "SUCCEEDED": "good",
    "RUNNING": "busy",
    "STARTING": "busy",
    "FAILED": "bad",
    "EXPIRED": "bad",
    "CANCELLED": "warn",
    "CANCELLING": "warn",
    "FINISHED": "good",
    "up": "good",
    "ok": "good",
    "unreachable": "bad",
    "blocked": "bad",
    "quarantined": "bad",
}


def has_colours(stream: object = None) -> bool:
    """Whether colours are wanted and understood: https://no-color.org, and a terminal."""
    told = os.environ.get("TRAINYARD_COLOR", "")
    if told in ("always", "never"):
        return told == "always"
    out = sys.stdout if stream is None else stream
    is_terminal = bool(getattr(out, "isatty", bool)()) and os.environ.get("TERM", "") != "dumb"
    return is_terminal and not os.environ.get("NO_COLOR")


def painted(text: str, tone: str) -> str:
    return f"{COLOURS[tone]}{text}{RESET}" if tone and has_colours() else text


def print_json(document: object) -> None:
    print(as_json(document, indent=2))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[object]], empty: str = "") -> None:
    """A table as wide as its texts. On a terminal, the last column is cut where the line ends."""
    if not rows:
        print(empty, file=sys.stderr)
        return
    texts = [[harmless("" if cell is None else str(cell)) for cell in row] for row in rows]
    widths = [max(width(line[place]) for line in [list(heads), *texts]) for place in range(len(heads))]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    print(painted(_line([head.upper() for head in heads], widths, room, ()), "muted"))
    for line in texts:
        print(_line(line, widths, room, [TONES.get(cell, "") for cell in line]))


def _line(cells: Sequence[str], widths: Sequence[int], room: int, tones: Sequence[str]) -> str:
    parts: list[str] = []
    used = 0
    for place, cell in enumerate(cells):
        is_last = place == len(cells) - 1
        text = cut(cell, max(room - used, 8)) if is_last and room else cell
        pad = "" if is_last else " " * (widths[place] - width(text) + 2)
        parts.append((painted(text, tones[place]) if tones and tones[place] else text) + pad)
        used += widths[place] + 2
    return "".join(parts).rstrip()


def print_pairs(pairs: Sequence[tuple[str, object]]) -> None:
    """Names and values, one a line. What is empty is left out."""
    shown = [(name, harmless(str(value))) for name, value in pairs if value not in (None, "", [], {})]
    room = max((width(name) for name, _ in shown), default=0)
    for name, value in shown:
        gap = " " * (room - width(name) + 2)
        print(f"{painted(name, 'muted')}{gap}{painted(value, TONES.get(value, ''))}")
