"""Looking for a text in all that is stored of a log, a bounded piece of it at a time.

Bytes are compared, without a difference between A and a; one hit for each line. Who looks through a long log asks again
from where the last answer ended, so no question costs more than `MOST_READ` bytes however long the log is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs import logs
from jobs.models import Run

MOST_READ = 8 * 1024 * 1024
STEP = 1024 * 1024
MOST_HITS = 200
# A line that is longer is searched in parts.
LONGEST_LINE = 64 * 1024
# What is shown of a line, before and behind what was found.
BEFORE, BEHIND = 100, 300


@dataclass(frozen=True, slots=True)
class Hit:
    """`offset`: of what was found. `line`: where its line begins, or the part of it that can be looked at."""

    offset: int
    line: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Found:
    hits: tuple[Hit, ...]
    # Everything before it was looked at. Whoever asks on from here misses nothing and finds nothing twice.
    end: int


def find(run: Run, needle: bytes, start: int, stop: int) -> Found:
    """Hits in [start, stop), the first ones; `start` should be the beginning of a line, or an `end`."""
    search = _Search(needle.lower(), start)
    position = start
    while position < stop and position - start < MOST_READ:
        chunk = logs.read(run, position, min(STEP, stop - position))
        if chunk.end == position:
            break
        if chunk.gaps:
            search.look(len(search.held))
            if search.full:
                break
            search.held, search.at = b"", chunk.start
        search.held += chunk.data
        position = chunk.end
        search.look(search.whole())
        if search.full:
            break
    if not search.full and (position >= stop or position - start < MOST_READ):
        # No more is stored: what there is of the last line counts.
        search.look(len(search.held), last=True)
    return Found(tuple(search.hits), search.at)


@dataclass(slots=True)
class _Search:
    needle: bytes
    at: int  # the offset of what is held
    held: bytes = b""
    hits: list[Hit] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return len(self.hits) >= MOST_HITS

    def whole(self) -> int:
        """How much of what is held can be looked at: whole lines, or most of one that is too long to wait for."""
        cut = self.held.rfind(b"\n") + 1
        too_long = len(self.held) - cut > LONGEST_LINE
        return max(len(self.held) - len(self.needle) + 1 - BEFORE, cut) if too_long else cut

    def look(self, size: int, last: bool = False) -> None:
        """Through the first `size` bytes, and let them go. Of a last line that may grow, what may begin a hit stays."""
        part = self.held[: size + len(self.needle) - 1] if not last else self.held
        folded, place = part.lower(), 0
        while not self.full and (found := folded.find(self.needle, place)) >= 0:
            line = part.rfind(b"\n", 0, found) + 1
            end = part.find(b"\n", found)
            end = len(part) if end < 0 else end
            self.hits.append(self._hit(part, found, line, end))
            place = max(end, found + len(self.needle))
        if self.full:
            size = place
        elif last:
            size = max(place, len(self.held) - len(self.needle) + 1, 0)
        else:
            size = max(size, min(place, len(self.held)))
        self.at, self.held = self.at + size, self.held[size:]

    def _hit(self, part: bytes, found: int, line: int, end: int) -> Hit:
        shown = max(line, found - BEFORE)
        text = part[shown : min(end, found + len(self.needle) + BEHIND)]
        return Hit(self.at + found, self.at + max(line, found - LONGEST_LINE // 16), text)
