"""What ends a program that brings an image: a disk of which too little is left, and a time by which it must be over.

Jobs that run on the host write to the same disk: their checkpoints come first.
"""

from __future__ import annotations

import time
from typing import Callable, List, Optional

from agents.runner.files import free_bytes, kept_free
from agents.runner.preparations.report import HOST, Failed

# A registry that sends a little now and then is never silent.
MOST_S = 6 * 3600.0


class Guard:
    """`places`: where the program writes. Asked once, and only of a program that takes a while."""

    def __init__(self, places: Callable[[], List[str]], most_s: float = MOST_S) -> None:
        self._find, self._most_s = places, most_s
        self._places: Optional[List[str]] = None
        self._until = time.monotonic() + most_s

    def look(self) -> None:
        """Raises Failed."""
        if time.monotonic() > self._until:
            raise Failed(HOST, "it was not finished within %g hours, and was stopped" % (self._most_s / 3600))
        if self._places is None:
            self._places = self._find()
        for place in self._places:
            check_disk(place)


def check_disk(place: str) -> None:
    """As for all that is brought to a host: half of what is kept free may be used while it is made."""
    try:
        left, least = free_bytes(place), kept_free(place) // 2
    except OSError:
        return  # the engine's own, which this login may not look at
    if left < least:
        raise Failed(
            HOST,
            "the disk of this host is nearly full (%d MB are left at %s). It was stopped, so that jobs that run here "
            "can still write" % (left >> 20, place),
        )
