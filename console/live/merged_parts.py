"""The lines of a log for a page that shows progress bars on their rows.

Each line has the controls that its program wrote, and what a line has without its line feed comes too. How such a line
ends up, a bar that was drawn a hundred times or a row that the cursor went up to, is decided in one place only:
static/log/lines.js. Here it is decided how often: what is written over is sent twice a second at most.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf

from console.live.merged_lines import LAST, MAX_LINE, OPEN, Line, LineFeeder
from console.live.tails import Piece

REST_S = 0.5
# A carriage return before other text, or the cursor goes up: something is written over.
_OVERWRITES = re.compile(rb"\r(?!\r*\n)|\x1b\[[0-9]*[AF]")


@dataclass(slots=True)
class PartFeeder(LineFeeder):
    """Nothing is to be read before `rests_until`. `held_since`: since when bytes wait for the end of their line."""

    rests_until: float = 0.0
    held_since: float | None = None
    # A part of the line was given already.
    is_open: bool = False
    # That part has an escape, which may end in the next one.
    _has_escape: bool = False
    _moves: bool = False

    def feed(self, piece: Piece) -> list[Line]:
        if piece.gap:
            return LineFeeder.feed(self, piece)
        self.held += piece.data
        self.taken = piece.end
        self.marks += piece.at
        self._moves = self._moves or _OVERWRITES.search(piece.data) is not None
        found, used = [], 0
        while (feed := self.held.find(b"\n", used)) >= 0:
            found.append(self._line(used, feed + 1))
            used = feed + 1
        if used:
            self.is_open, self.held_since = False, None
            self._drop(used)
        return found

    def rest(self, now: float) -> list[Line]:
        """What waits for the end of its line, if it is a bar, or has waited long. Call it when all was fed."""
        found = []
        if not self.held:
            self.held_since = None
        elif self.held_since is None:
            self.held_since = now
        waited = self.held_since is not None and now - self.held_since >= REST_S
        if self._moves or waited or len(self.held) > MAX_LINE:
            if size := _whole_letters(self.held):
                found.append(self._line(0, size)._replace(kind=OPEN))
                self.is_open = True
                self._drop(size)
            self.held_since = None
            self.rests_until = now + REST_S
        elif now >= self.rests_until:
            self.rests_until = 0.0
        self._moves = False
        return found

    def due_at(self) -> float:
        """When to look at the log again if no hint comes."""
        held = inf if self.held_since is None else self.held_since + REST_S
        return min(held, self.rests_until or inf)

    def finish(self) -> list[Line]:
        found = LineFeeder.finish(self)
        if not found and self.is_open:
            found = [Line(self.at, self.log, self.end, "")]
        self.is_open = False
        return [line._replace(kind=LAST) for line in found]

    def skip(self, end: int, why: str) -> list[Line]:
        self.is_open, self.held_since = False, None
        return LineFeeder.skip(self, end, why)

    def _text(self, line: bytes) -> str:
        text = line.removesuffix(b"\n").decode("utf-8", "replace") if self._has_escape else as_written(line)
        self._has_escape = not line.endswith(b"\n") and (self._has_escape or b"\x1b" in line)
        return text


def as_written(line: bytes) -> str:
    """The text of a line with its controls, but for text that a carriage return replaces as a whole."""
    body = line.removesuffix(b"\n").rstrip(b"\r") if line.endswith(b"\n") else line
    last = body.rstrip(b"\r").rfind(b"\r")
    if last > 0 and b"\x1b" not in body[:last]:
        body = body[last:]
    return body.decode("utf-8", "replace")


def _whole_letters(data: bytearray) -> int:
    """The size of the data without a letter at its end that has come in part."""
    for back in range(1, min(len(data), 4) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            size = 1 + sum(first <= byte < 0xF8 for first in (0xC0, 0xE0, 0xF0))
            return len(data) - back if size > back else len(data)
    return len(data)
