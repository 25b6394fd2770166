"""One safeguard, and how it is taken out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Safeguard:
    """`words` stand in `file` exactly once; `instead` is what stands there when the safeguard is taken out."""

    name: str
    file: str
    words: str
    instead: str
    tests: tuple[str, ...]
    postgresql: bool = False

    def taken_out(self, text: str) -> str:
        if text.count(self.words) != 1:
            raise ValueError(f"{self.name}: {self.file} has {self.words!r} {text.count(self.words)} times")
        return text.replace(self.words, self.instead)
