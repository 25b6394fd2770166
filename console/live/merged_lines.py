"""The lines of many logs in the order of their times, as they come.

Each log gives whole lines, each once: a line is known by its run and by the offset at which it ends. Within one log the
lines keep their order, also when the clock of its host was set back. A line that comes late, because its host was late,
comes behind lines that were printed after it: the viewer puts it in its place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from console.live.tails import Piece
from jobs.logs.pieces import Mark

# A longer line comes in parts.
MAX_LINE = 16 * 1024
# What a line can be besides a whole one: it says what is missing; it goes on in the next one of its log; it is the
# rest, maybe empty, of one that has no line feed, and nothing follows.
NOTE, OPEN, LAST = "note", "open", "last"


class Line(NamedTuple):
    """A line of the log number `log`. Its time is when its last byte was printed, by its host's clock, but never
    before that of the line before. `kind`: empty, or one of those above."""

    at: float
    log: int
    end: int
    text: str
    kind: str = ""


@dataclass(slots=True)
class LineFeeder:
    """Cuts one log into lines, from the offset `end` on, which is the end of a line."""

    log: int
    end: int
    at: float
    # The offset up to which bytes were taken, and the bytes behind `end`.
    taken: int = 0
    held: bytearray = field(default_factory=bytearray)
    marks: list[Mark] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.taken = self.end

    def feed(self, piece: Piece) -> list[Line]:
        """The lines that end in this piece, which begins where the piece before ended."""
        if piece.gap:
            size = piece.end - self.taken
            return [*self.finish(), *self.skip(piece.end, f"{size} bytes are missing: {piece.gap}")]
        self.held += piece.data
        self.taken = piece.end
        self.marks += piece.at
        found = []
        used = 0
        while True:
            feed = self.held.find(b"\n", used)
            size = (feed if feed >= 0 else len(self.held)) - used
            if size > MAX_LINE:
                found.append(self._line(used, used + MAX_LINE))
                used += MAX_LINE
            elif feed >= 0:
                found.append(self._line(used, feed + 1))
                used = feed + 1
            else:
                break
        self._drop(used)
        return found

    def finish(self) -> list[Line]:
        """The last line, which has no line feed. Nothing follows it."""
        found = [self._line(0, len(self.held))] if self.held else []
        self._drop(len(self.held))
        return found

    def skip(self, end: int, why: str) -> list[Line]:
        """Go on at `end`. The bytes before it are not shown, and a line says so."""
        self.held.clear()
        self.end = self.taken = end
        return [Line(self.at, self.log, end, why, NOTE)]

    def _line(self, start: int, stop: int) -> Line:
        end = self.end + stop
        place = bisect_right(self.marks, end - 1, key=lambda mark: mark[0])
        if place:
            self.at = max(self.at, self.marks[place - 1][1])
        return Line(self.at, self.log, end, self._text(bytes(self.held[start:stop])))

    def _text(self, line: bytes) -> str:
        return _shown(line)

    def _drop(self, used: int) -> None:
        del self.held[:used]
        self.end += used
        passed = bisect_right(self.marks, self.end, key=lambda mark: mark[0]) - 1
        if passed > 0:
            del self.marks[:passed]


def in_order(lines: Iterable[Line]) -> list[Line]:
    """By time, then by log, then as they stand in it."""
    return sorted(lines, key=lambda line: (line.at, line.log, line.end))


def _shown(line: bytes) -> str:
    """The text of a line. Of a progress bar, what it shows at last: it goes back to the begin of its line each time."""
    text = line.rstrip(b"\r\n")
    return text[text.rfind(b"\r") + 1 :].decode("utf-8", "replace")
