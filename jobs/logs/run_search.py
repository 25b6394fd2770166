"""Search a text in the stored log of one run, a bounded part for each call.

There is one hit for each line. A search of a long log continues from where the last answer ended, so no call reads more
than `MAX_READ` bytes, however long the log is.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from jobs.logs import reader
from jobs.logs.pieces import Mark
from jobs.logs.search_budget import SearchBudget
from jobs.logs.search_pattern import LogPattern
from jobs.models import Run

MAX_READ = 8 * 1024 * 1024
MAX_HITS = 200
# A line that is longer is searched in parts. The step of a pattern is longer than this, so each step moves on.
MAX_LINE = 64 * 1024
# How many bytes of a line are shown before and after the start of a match.
BEFORE, BEHIND = 100, 300


@dataclass(frozen=True, slots=True)
class Hit:
    """One match. `offset` is where it begins, and `match` what was found. `line` is where its line begins (or the part
    of the line that can be read), and `wall` when it was printed, by the host's clock, where the log has a mark."""

    offset: int
    line: int
    text: bytes
    wall: float | None = None
    match: bytes = b""


@dataclass(frozen=True, slots=True)
class Found:
    """The hits of one call. Everything before `end` was searched: a search that continues there misses nothing and
    finds nothing twice. `over`: nothing more is stored. `read`: how many bytes the call read. `wall`: when what stands
    before `end` was printed, where the log has a mark."""

    hits: tuple[Hit, ...]
    end: int
    over: bool
    read: int
    wall: float | None = None


def search_run(
    run: Run,
    pattern: LogPattern,
    start: int,
    stop: int,
    max_read: int = 0,
    max_hits: int = 0,
    budget: SearchBudget | None = None,
) -> Found:
    """Find the first hits in [start, stop). `start` should be the beginning of a line, or the `end` of a call before.

    The search ends after about `max_read` bytes or `max_hits` hits (0 stands for the limits of one call), or when the
    budget is spent.
    """
    max_read, max_hits = max_read or MAX_READ, max_hits or MAX_HITS
    search = _Search(pattern, start, max_hits)
    position, all_read = start, start >= stop
    while position < stop and position - start < max_read:
        chunk = reader.read(run, position, min(pattern.step, stop - position, start + max_read - position))
        all_read = chunk.end == position or chunk.end >= stop
        if chunk.end == position:
            break
        if chunk.gaps:
            search.search(len(search.held))
            if search.full:
                break
            search.held, search.at = b"", chunk.start
        search.held += chunk.data
        search.marks += chunk.at
        position = chunk.end
        search.search(search.searchable())
        if search.full or (budget is not None and search.at > start and budget.spent()):
            break
    over = not search.full and all_read
    if over:
        # No more is stored, so the last line is searched as far as it goes.
        search.search(len(search.held), last=True)
    return Found(tuple(search.hits), search.at, over and not search.full, position - start, search.wall)


@dataclass(slots=True)
class _Search:
    pattern: LogPattern
    # The offset of `held` in the log.
    at: int
    max_hits: int
    held: bytes = b""
    marks: list[Mark] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return len(self.hits) >= self.max_hits

    @property
    def wall(self) -> float | None:
        mark = bisect_right(self.marks, self.at, key=lambda mark: mark[0])
        return self.marks[mark - 1][1] if mark else None

    def searchable(self) -> int:
        """How many of the held bytes can be searched: whole lines, or most of a line that is too long to wait for."""
        cut = self.held.rfind(b"\n") + 1
        too_long = len(self.held) - cut > MAX_LINE
        return max(len(self.held) - self.pattern.reach + 1 - BEFORE, cut) if too_long else cut

    def search(self, size: int, last: bool = False) -> None:
        """Search the first `size` bytes and drop them. If the line may still grow, bytes that may begin a hit stay."""
        by_line = self.pattern.whole_lines
        part = self.held if last else self.held[: size + self._behind(size)]
        find, position = self.pattern.finder(part), 0
        while not self.full and (found := find(position)) is not None:
            line = part.rfind(b"\n", 0, found[0]) + 1
            end = part.find(b"\n", found[0])
            end = len(part) if end < 0 else end
            self.hits.append(self._hit(part, found, line, end))
            # An expression may match the empty end of a line: the next match is in the next line.
            position = max(end + by_line, found[1])
        if self.full:
            size = min(position, len(self.held))
        elif last:
            size = max(position, len(self.held) - self.pattern.reach + 1, 0)
        else:
            size = max(size, min(position, len(self.held)))
        self.at, self.held = self.at + size, self.held[size:]

    def _behind(self, size: int) -> int:
        """How many of the bytes behind the first `size` ones are searched with them: a match may end there."""
        ends_a_line = size == 0 or self.held[size - 1] == ord("\n")
        return 0 if self.pattern.whole_lines and ends_a_line else self.pattern.reach - 1

    def _hit(self, part: bytes, found: tuple[int, int], line: int, end: int) -> Hit:
        shown = max(line, found[0] - BEFORE)
        text = part[shown : min(end, found[1] + BEHIND)]
        offset = self.at + found[0]
        begins = self.at + max(line, found[0] - MAX_LINE // 16)
        mark = bisect_right(self.marks, offset, key=lambda mark: mark[0])
        match = part[found[0] : found[1]][:BEHIND]
        return Hit(offset, begins, text, self.marks[mark - 1][1] if mark else None, match)
