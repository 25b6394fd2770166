"""A text that is looked for in the bytes of logs, without a difference between upper and lower case.

In ASCII text that is a matter of bytes. The cases of other letters are other bytes, sometimes more or fewer of them:
for those a pattern is made of all that Unicode's case folding takes for the same. Nothing is decoded, so that offsets
stay what they are, and bytes that are no UTF-8 do no harm.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

# Behind it no letter has a case.
CASES_END = 0x1E944
# The longest text that one letter may stand for: ΐ.
MAX_FOLD = 3

Span = tuple[int, int]
Finder = Callable[[int], Span | None]


class SearchPattern:
    """`reach`: the most bytes that a place where it is found can have."""

    def __init__(self, text: str) -> None:
        self._finder: Callable[[bytes], Finder]
        if text.isascii():
            plain = text.lower().encode()
            self.reach = len(plain)
            self._finder = partial(_plainly, plain)
        else:
            readings = [_cut(text), _cut(_joined(text.casefold()))]
            self.reach = max(sum(len(max(part, key=len)) for part in parts) for parts in readings)
            patterns = [b"".join(map(_either, parts)) for parts in readings]
            self._finder = partial(_by_pattern, re.compile(b"|".join(dict.fromkeys(patterns))))

    def within(self, data: bytes) -> Finder:
        """The first place at or behind the given one, for one look after the other through the same bytes."""
        return self._finder(data)


def _plainly(plain: bytes, data: bytes) -> Finder:
    lowered = data.lower()

    def find(at: int) -> Span | None:
        found = lowered.find(plain, at)
        return (found, found + len(plain)) if found >= 0 else None

    return find


def _by_pattern(pattern: re.Pattern[bytes], data: bytes) -> Finder:
    def find(at: int) -> Span | None:
        found = pattern.search(data, at)
        return found.span() if found else None

    return find


def _joined(folded: str) -> list[str]:
    """Cut so that what one letter may stand for, as ß does for ss, stays together."""
    parts: list[str] = []
    at = 0
    while at < len(folded):
        size = next(n for n in range(MAX_FOLD, 0, -1) if n == 1 or folded[at : at + n] in _letters())
        parts.append(folded[at : at + size])
        at += size
    return parts


def _cut(parts: Iterable[str]) -> list[list[bytes]]:
    """Of each part all spellings: letter by letter, and those of one letter for the whole of it."""
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
    """What letters fold to → those letters."""
    found: defaultdict[str, str] = defaultdict(str)
    for letter in map(chr, range(CASES_END)):
        folded = letter.casefold()
        if folded != letter:
            found[folded] += letter
    return dict(found)
