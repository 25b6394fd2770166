"""A pattern that finds a text in the bytes of logs, ignoring upper and lower case.

For ASCII text, lowering the bytes is enough. For other text, the log is folded by Unicode's case folding (ß is ss),
block by block, and the place in the folded text is followed back to the bytes. The time grows with the length of the
log and with nothing else: no text and no log makes a search go back over what it has read, as a regular expression
does.

Offsets are those of the log's bytes. Bytes that are not UTF-8 equal only themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

# How much is folded at a time. Nothing else runs in this process meanwhile, for about a quarter of a millisecond.
BLOCK = 16 * 1024
# After each block, other threads get this long. Without it the event loop would wait for its turn for 5 ms.
PAUSE_S = 0.0001
# The most bytes of UTF-8 for one character. Every character folds to at least one.
MAX_LETTER = 4

Span = tuple[int, int]
Finder = Callable[[int], Span | None]


class LogPattern(Protocol):
    """What is searched in a log: a text, or a regular expression (regex_pattern.py).

    `reach` is the length in bytes of the longest match. `step` is how much is searched between two looks at the budget.
    `whole_lines`: a line is searched when its end is there, so that `$` matches nowhere else.
    """

    reach: int
    step: int
    whole_lines: bool

    def finder(self, data: bytes) -> Finder:
        """A function that finds the first match in `data` at or after a position. Call it again for the next match."""
        ...


class SearchPattern:
    """A text. Upper and lower case are the same."""

    step = 256 * 1024
    whole_lines = False

    def __init__(self, text: str) -> None:
        self._finder: Callable[[bytes], Finder]
        if text.isascii():
            plain = text.lower().encode()
            self.reach = len(plain)
            self._finder = partial(_find_bytes, plain)
        else:
            folded = text.casefold()
            self.reach = MAX_LETTER * len(folded)
            self._finder = partial(_find_folded, folded, self.reach)

    def finder(self, data: bytes) -> Finder:
        """A function that finds the first match in `data` at or after a position. Call it again for the next match."""
        return self._finder(data)


def _find_bytes(plain: bytes, data: bytes) -> Finder:
    lowered = data.lower()

    def find(at: int) -> Span | None:
        found = lowered.find(plain, at)
        return (found, found + len(plain)) if found >= 0 else None

    return find


def _find_folded(folded: str, reach: int, data: bytes) -> Finder:
    def find(at: int) -> Span | None:
        while at < len(data):
            # A match that begins in this block may end behind it.
            block = _decode(data[at : _boundary(data, at + BLOCK + reach)])
            span = _place(block, folded)
            if span is not None:
                start = at + len(_encode(block[: span[0]]))
                return start, start + len(_encode(block[span[0] : span[1]]))
            at = _boundary(data, at + BLOCK)
            time.sleep(PAUSE_S)
        return None

    return find


def _place(block: str, folded: str) -> Span | None:
    """Where the block holds the folded text, in its own characters: the half of an ß counts as the whole letter."""
    in_folded = block.casefold()
    found = in_folded.find(folded)
    if found < 0:
        return None
    if len(in_folded) == len(block):
        return found, found + len(folded)
    start, covered = _letter_at(block, 0, found)
    last, _ = _letter_at(block, start, found + len(folded) - 1 - covered)
    return start, last + 1


def _letter_at(block: str, start: int, place: int) -> tuple[int, int]:
    """The index of the letter whose folding holds character number `place` of what is folded from `start` on, and how
    many characters the letters from `start` to it fold to. Each step looks at half of what the step before left.
    """
    low, high, covered = start, len(block), 0
    while high - low > 1:
        middle = (low + high) // 2
        size = len(block[low:middle].casefold())
        if covered + size <= place:
            low, covered = middle, covered + size
        else:
            high = middle
    return low, covered


def _boundary(data: bytes, at: int) -> int:
    """The last position up to `at` that does not divide a character."""
    if at >= len(data):
        return len(data)
    for back in range(MAX_LETTER):
        if data[at - back] & 0xC0 != 0x80:
            return at - back
    return at


def _decode(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _encode(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
