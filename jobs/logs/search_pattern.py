"""A pattern that finds a text in the bytes of logs, ignoring upper and lower case.

For ASCII text, lowering the bytes is enough. The two cases of other letters are different bytes, sometimes more or
fewer of them: for these, a regular expression lists all spellings that Unicode's case folding makes equal. Logs are not
decoded, so that offsets stay valid and bytes that are not UTF-8 do no harm.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

# No letter after this one has a case.
CASES_END = 0x1E944
# The longest text that one letter may stand for: ΐ.
MAX_FOLD = 3

Span = tuple[int, int]
Finder = Callable[[int], Span | None]


class SearchPattern:
    """`reach` is the length in bytes of the longest match."""

    def __init__(self, text: str) -> None:
        self._finder: Callable[[bytes], Finder]
        if text.isascii():
            plain = text.lower().encode()
            self.reach = len(plain)
            self._finder = partial(_find_bytes, plain)
        else:
            readings = [_spellings_of_parts(text), _spellings_of_parts(_split(text.casefold()))]
            self.reach = max(sum(len(max(part, key=len)) for part in parts) for parts in readings)
            patterns = [b"".join(map(_either, parts)) for parts in readings]
            self._finder = partial(_find_pattern, re.compile(b"|".join(dict.fromkeys(patterns))))

    def finder(self, data: bytes) -> Finder:
        """A function that finds the first match in `data` at or after a position. Call it again for the next match."""
        return self._finder(data)


def _find_bytes(plain: bytes, data: bytes) -> Finder:
    lowered = data.lower()

    def find(at: int) -> Span | None:
        found = lowered.find(plain, at)
        return (found, found + len(plain)) if found >= 0 else None

    return find


def _find_pattern(pattern: re.Pattern[bytes], data: bytes) -> Finder:
    def find(at: int) -> Span | None:
        found = pattern.search(data, at)
        return found.span() if found else None

    return find


def _split(folded: str) -> list[str]:
    """Split folded text so that the letters that one letter can stand for, as ß for ss, stay together."""
    parts: list[str] = []
    at = 0
    while at < len(folded):
        size = next(n for n in range(MAX_FOLD, 0, -1) if n == 1 or folded[at : at + n] in _letters())
        parts.append(folded[at : at + size])
        at += size
    return parts


def _spellings_of_parts(parts: Iterable[str]) -> list[list[bytes]]:
    """All spellings of each part: letter by letter, and the single letters that stand for the whole part."""
    cut: list[list[bytes]] = []
    for folded in (part.casefold() for part in parts):
        spellings = [b""]
        for letter in folded:
            spellings = [before + each for before in spellings for each in _spellings(letter)]
        cut.append(
            [*spellings, *([one.encode() for one in _letters().get(folded, "")] if folded[1:] else [])]
        )
    return cut


def _spellings(letter: str) -> list[bytes]:
    return [one.encode() for one in (letter, *_letters().get(letter, ""))]


def _either(alternatives: list[bytes]) -> bytes:
    return b"(?:" + b"|".join(re.escape(one) for one in alternatives) + b")"


@cache
def _letters() -> Mapping[str, str]:
    """A folded text → the letters that fold to it."""
    found: defaultdict[str, str] = defaultdict(str)
    for letter in map(chr, range(CASES_END)):
        folded = letter.casefold()
        if folded != letter:
            found[folded] += letter
    return dict(found)
