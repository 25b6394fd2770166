"""Which tests are nearest to files that have changed: the folders of `tests/unit` mirror those of the code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

UNIT = ("tests", "unit")
# Pages are tried by the tests of their views.
PAGES = {"templates": ("console", "views"), "static": ("console", "views"), "locale": ("console", "views")}


def nearest(changed: Iterable[str], tests: Sequence[str]) -> list[str]:
    """The tests, those nearest to the changed files first. What has changed itself comes before all others."""
    places = [(_words(path), path) for path in changed]

    def distance(test: str) -> tuple[int, str]:
        return min((_distance(words, path, test) for words, path in places), default=0), test

    return sorted(tests, key=distance)


def _distance(words: tuple[str, ...], path: str, test: str) -> int:
    if path == test:
        return 0
    subject = _words(test)
    common = 0
    while common < min(len(words), len(subject)) and words[common] == subject[common]:
        common += 1
    steps = 2 * (len(words) - common + len(subject) - common)
    # `test_drawing.py` tries `drawing.py` first of all; a test in its folder without that name is a step farther.
    return max(1, steps - 3) if words[-1] == subject[-1] else steps


def _words(path: str) -> tuple[str, ...]:
    """The place in the code, and the name, without `test_` and its ending."""
    parts = PurePosixPath(path).with_suffix("").parts
    parts = parts[2:] if parts[:2] == UNIT else (*PAGES.get(parts[0], parts[:1]), *parts[1:])
    return (*parts[:-1], parts[-1].removeprefix("test_").strip("_"))
