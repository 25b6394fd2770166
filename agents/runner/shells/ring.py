"""The newest output of a shell, from which a terminal that comes later gets its screen and its scrollback."""

from __future__ import annotations

import re
from typing import Dict, Tuple

MIN_BYTES = 1 << 20
DEFAULT_BYTES = 2 << 20
# How far to look for the end of a line, so that what is kept does not begin within a character or a sequence.
_LINE_BYTES = 4096
# Private modes that stay set until a program resets them: cursor keys, wrapping, cursor, mouse, focus, alternate
# screen, bracketed paste.
_KEPT = frozenset(
    {b"1", b"6", b"7", b"9", b"12", b"25", b"45", b"47", b"66", b"1000", b"1002", b"1003", b"1004"}
    | {b"1005", b"1006", b"1007", b"1015", b"1016", b"1047", b"1048", b"1049", b"2004"}
)
_ALTERNATE = (b"47", b"1047", b"1049")
_SEQUENCE = re.compile(rb"\x1b(?:\[\?([0-9;]{1,60})([hl])|([=>c])|([()][0AB]))")
# A sequence may be cut at the edge of two pieces: so many bytes of the first piece are looked at again.
_CARRY = 64


class Modes:
    """Follows what a program has switched on in the terminal, in output that is no longer kept."""

    def __init__(self) -> None:
        self._private: Dict[bytes, bytes] = {}
        self._keypad = self._charset = b""
        self._carry = b""

    def feed(self, data: bytes) -> None:
        """Follow the next piece. What was found twice at an edge is set twice to the same."""
        data = self._carry + data
        for numbers, to, single, charset in _SEQUENCE.findall(data):
            if single == b"c":
                self._private.clear()
                self._keypad = self._charset = b""
            elif single:
                self._keypad = single
            elif charset:
                self._charset = charset
            for number in numbers.split(b";") if numbers else ():
                if number in _KEPT:
                    self._private[number] = to
        self._carry = data[-_CARRY:]

    @property
    def is_alternate(self) -> bool:
        return any(self._private.get(number) == b"h" for number in _ALTERNATE)

    def as_sequences(self) -> bytes:
        """The bytes that bring a fresh terminal into these modes."""
        set_modes = [b"\x1b[?%s%s" % each for each in self._private.items()]
        return b"".join(set_modes) + b"".join(
            b"\x1b" + each for each in (self._keypad, self._charset) if each
        )


class Ring:
    """Output by offset: `start` is the first byte that is kept, `end` the next one that will come."""

    def __init__(self, size: int = DEFAULT_BYTES) -> None:
        self.size = max(MIN_BYTES, size)
        self.start = self.end = 0
        self.modes = Modes()
        self._kept = bytearray()

    def append(self, data: bytes) -> None:
        """Keep new output. When twice the size is kept, the older half goes: moving bytes costs little that way."""
        self._kept += data
        self.end += len(data)
        if len(self._kept) >= 2 * self.size:
            self._forget(len(self._kept) - self.size)

    def _forget(self, size: int) -> None:
        line = self._kept.find(b"\n", size, size + _LINE_BYTES)
        size = size if line < 0 else line + 1
        self.modes.feed(bytes(self._kept[:size]))
        del self._kept[:size]
        self.start += size

    def read(self, at: int, maximum: int) -> bytes:
        """Output from this offset on, which must be kept."""
        begin = at - self.start
        return bytes(self._kept[begin : begin + maximum])

    def place(self, wanted: int | None) -> Tuple[int, bool]:
        """Where to begin for a terminal that has all before `wanted`, or nothing; and whether output in between is
        lost."""
        if wanted is None:
            return self.start, self.start > 0
        if self.start <= wanted <= self.end:
            return wanted, False
        return self.start, True
