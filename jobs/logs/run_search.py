"""Looking for a text in all that is stored of a log, a bounded piece of it at a time.

One hit for each line. Who looks through a long log asks again from where the last answer ended, so no question costs
more than `MOST_READ` bytes however long the log is.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from jobs.logs import reader
from jobs.logs.pieces import Mark
from jobs.logs.search_pattern import SearchPattern
from jobs.models import Run

MAX_READ = 8 * 1024 * 1024
STEP = 1024 * 1024
MAX_HITS = 200
# A line that is longer is searched in parts.
MAX_LINE = 64 * 1024
# What is shown of a line, before and behind what was found.
BEFORE, BEHIND = 100, 300


@dataclass(frozen=True, slots=True)
class Hit:
    """`offset`: of what was found. `line`: where its line begins, or the part of it that can be looked at. `wall`: when
    it was printed, by the host's clock, where the log tells."""

    offset: int
    line: int
    text: bytes
    wall: float | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Everything before `end` was looked at: whoever asks on from there misses nothing and finds nothing twice. `over`:
    nothing more is stored. `read`: what the answer has cost, in bytes."""

    hits: tuple[Hit, ...]
    end: int
    over: bool
    read: int


def search_run(run: Run, needle: SearchPattern, start: int, stop: int, most: int = 0, hits: int = 0) -> Found:
    """Hits in [start, stop), the first ones; `start` should be the beginning of a line, or an `end`.

    It ends after about `most` bytes or so many `hits`, or after as many as one question may have.
    """
    most, hits = most or MAX_READ, hits or MAX_HITS
    search = _Search(needle, start, hits)
    position = start
    while position < stop and position - start < most:
        chunk = reader.read(run, position, min(STEP, stop - position))
        if chunk.end == position:
            break
        if chunk.gaps:
            search.look(len(search.held))
            if search.full:
                break
            search.held, search.at = b"", chunk.start
        search.held += chunk.data
        search.marks += chunk.at
        position = chunk.end
        search.look(search.whole())
        if search.full:
            break
    over = not search.full and (position >= stop or position - start < most)
    if over:
        # No more is stored: what there is of the last line counts.
        search.look(len(search.held), last=True)
    return Found(tuple(search.hits), search.at, over and not search.full, position - start)


@dataclass(slots=True)
class _Search:
    needle: SearchPattern
    at: int  # the offset of what is held
    most: int
    held: bytes = b""
    marks: list[Mark] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return len(self.hits) >= self.most

    def whole(self) -> int:
        """How much of what is held can be looked at: whole lines, or most of one that is too long to wait for."""
        cut = self.held.rfind(b"\n") + 1
        too_long = len(self.held) - cut > MAX_LINE
        return max(len(self.held) - self.needle.reach + 1 - BEFORE, cut) if too_long else cut

    def look(self, size: int, last: bool = False) -> None:
        """Through the first `size` bytes, and let them go. Of a last line that may grow, what may begin a hit stays."""
        part = self.held[: size + self.needle.reach - 1] if not last else self.held
        next_in, place = self.needle.within(part), 0
        while not self.full and (found := next_in(place)) is not None:
            line = part.rfind(b"\n", 0, found[0]) + 1
            end = part.find(b"\n", found[0])
            end = len(part) if end < 0 else end
            self.hits.append(self._hit(part, found, line, end))
            place = max(end, found[1])
        if self.full:
            size = place
        elif last:
            size = max(place, len(self.held) - self.needle.reach + 1, 0)
        else:
            size = max(size, min(place, len(self.held)))
        self.at, self.held = self.at + size, self.held[size:]

    def _hit(self, part: bytes, found: tuple[int, int], line: int, end: int) -> Hit:
        shown = max(line, found[0] - BEFORE)
        text = part[shown : min(end, found[1] + BEHIND)]
        offset = self.at + found[0]
        begins = self.at + max(line, found[0] - MAX_LINE // 16)
        mark = bisect_right(self.marks, offset, key=lambda mark: mark[0])
        return Hit(offset, begins, text, self.marks[mark - 1][1] if mark else None)
