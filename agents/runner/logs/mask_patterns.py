"""What output may show of a secret, and where: the value itself, and the forms in which programs often print it. Pure.

The host masks recordings of shells with it while they are written; the console masks logs with it when they are read.
A program that prints a secret in another form, reversed or letter by letter, is not found out.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Dict, Iterable, Iterator, List, Tuple
from urllib.parse import quote, quote_plus, unquote, urlsplit

# A shorter value would mask half of a log, and is no secret.
LEAST = 6
LEAST_BASE64 = 8
# The lines of a value of several lines (a private key) are masked one by one too, as logs often indent them.
LEAST_LINE, MOST_LINES = 8, 200
_NO_LINE_BREAK = re.compile(rb"[^\r\n]")

Span = Tuple[int, int]


class MaskPatterns:
    """The texts to mask, as bytes."""

    def __init__(self, values: Iterable[str]) -> None:
        found = {form for value in values for form in forms_of(value)}
        self.needles = sorted(found, key=len, reverse=True)
        # How many bytes before or after a place can decide whether it is masked.
        self.reach = len(self.needles[0]) - 1 if self.needles else 0
        self._by_first: Dict[int, List[bytes]] = {}
        for needle in self.needles:
            self._by_first.setdefault(needle[0], []).append(needle)

    def spans(self, data: bytes) -> List[Span]:
        """The parts of the data that are masked, in order and without overlap."""
        found: List[Span] = []
        for needle in self.needles:
            at = data.find(needle)
            while at >= 0:
                found.append((at, at + len(needle)))
                at = data.find(needle, at + 1)
        return merged(found)

    def unfinished(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of a text to mask: the longest such end."""
        for at in range(max(len(data) - self.reach, 0), len(data)):
            end = data[at:]
            if any(len(needle) > len(end) and needle.startswith(end) for needle in self._beginning(data[at])):
                return len(end)
        return 0

    def _beginning(self, first: int) -> List[bytes]:
        return self._by_first.get(first, [])


def forms_of(value: str) -> Iterator[bytes]:
    """The forms of a value that are masked: as it is, in JSON, in Python, in an address, in base64, line by line."""
    texts = {
        value,
        value.strip(),
        value.replace("\n", "\r\n"),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        quote(value),
        quote(value, safe=""),
        quote_plus(value),
    }
    yield from (text.encode() for text in texts if len(text.encode()) >= LEAST)
    lines = [line.strip() for line in value.split("\n")] if "\n" in value else []
    longest = sorted((line for line in lines if len(line) >= LEAST_LINE), key=len, reverse=True)
    yield from (line.encode() for line in longest[:MOST_LINES])
    if len(value.encode()) >= LEAST:
        yield from _base64(value.encode())


def _base64(raw: bytes) -> Iterator[bytes]:
    """The value in base64, alone or behind one or two other bytes of a group of three (`user:` before a password).

    Characters that depend on what stands beside the value are left out.
    """
    for before in range(3):
        bits = before * 8
        first, last = -(-bits // 6), (bits + len(raw) * 8) // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(bytes(before) + raw)[first:last]
            if len(text) >= LEAST_BASE64:
                yield text


def parts_of(value: str) -> Iterator[str]:
    """What is secret in a value. Of an address only the password. Of `user:password` the password alone is one too."""
    if "://" in value:
        password = urlsplit(value).password or ""
        yield from {password, unquote(password)}
        return
    yield value
    if "\n" not in value.strip() and ":" in value:
        yield value.partition(":")[2]


def merged(spans: Iterable[Span]) -> List[Span]:
    """The same places without overlap."""
    found: List[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def blank(data: bytearray, spans: Iterable[Span]) -> None:
    """Write `*` over these places. The length and the line breaks stay, so that offsets and line numbers stay true."""
    for start, end in spans:
        data[start:end] = _NO_LINE_BREAK.sub(b"*", data[start:end])
