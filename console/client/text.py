"""Text of other people on a terminal: what could command the terminal is shown as signs, and does nothing."""

from __future__ import annotations

import json
import re
import unicodedata

# Control bytes, and the characters that turn the direction of the text around them.
_ABOVE = "\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_HARMFUL = re.compile(f"[\x00-\x08\x0a-\x1f{_ABOVE}]")
_HARMFUL_IN_JSON = re.compile(f"[{_ABOVE}]")
# Colours of a program: the only sequence that is let through, and only to a terminal.
_COLOUR = re.compile("(\x1b\\[[0-9;:]{0,60}m)")
RESET = "\x1b[0m"


def harmless(text: str, colours: bool = False) -> str:
    """The text in one line. With `colours`, the colours that it sets are kept, and end with it."""
    if not colours:
        return _HARMFUL.sub(_sign, _COLOUR.sub("", text))
    parts = _COLOUR.split(text)
    kept = "".join(part if number % 2 else _HARMFUL.sub(_sign, part) for number, part in enumerate(parts))
    return kept + RESET if len(parts) > 1 else kept


def as_json(document: object, indent: int | None = None) -> str:
    """JSON that says the same, and commands no terminal either. Letters of all languages stay as they are."""
    # JSON itself escapes what lies below U+0020; the line feeds are its own.
    return _HARMFUL_IN_JSON.sub(
        lambda found: f"\\u{ord(found[0]):04x}", json.dumps(document, indent=indent, ensure_ascii=False)
    )


def _sign(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x20:
        return "^" + chr(number + 0x40)
    return "^?" if number == 0x7F else f"<U+{number:04X}>"


def width(text: str) -> int:
    """How many columns a text has on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def cut(text: str, columns: int) -> str:
    """The begin of a text, in at most so many columns."""
    if width(text) <= columns:
        return text
    while text and width(text) > columns - 1:
        text = text[:-1]
    return text + "…"


def size(count: float) -> str:
    """A number of bytes in words."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration(seconds: float) -> str:
    """A length of time, as exact as people need it."""
    whole = int(max(seconds, 0))
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}min"
    return f"{minutes}min {whole % 60}s" if minutes else f"{whole}s"
