"""How long one request may look through logs, and how many of a person do so at a time.

It ends early when its time is over, when the same person has asked the same again in this process (a person has one
search), or when the person has begun several others. What it has found by then is its answer, which says where to
continue. So nobody waits for another one, and no lock is held meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from types import TracebackType

# The time of one request. It goes on with the next request, so a long log only needs more of them.
MAX_S = 0.5

# How many of one person go on at a time, whatever they look for. A page of all lines has two: up and down.
MOST = 4

_lock = threading.Lock()
# By person: what goes on, by what is asked, the oldest first.
_going_on: dict[Hashable, dict[Hashable, SearchBudget]] = {}


class SearchBudget:
    """The budget of one request. A search looks at `spent` after each part, and always searches at least one part."""

    def __init__(self, person: Hashable, asked: Hashable = "search", seconds: float = MAX_S) -> None:
        self.person, self.asked = person, asked
        self._until = time.monotonic() + seconds

    def __enter__(self) -> SearchBudget:
        with _lock:
            mine = _going_on.setdefault(self.person, {})
            # As the newest, also where the same was asked before.
            mine.pop(self.asked, None)
            mine[self.asked] = self
            if len(mine) > MOST:
                del mine[next(iter(mine))]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _lock:
            mine = _going_on.get(self.person, {})
            if mine.get(self.asked) is self:
                del mine[self.asked]
            if not mine:
                _going_on.pop(self.person, None)

    def spent(self) -> bool:
        ended = _going_on.get(self.person, {}).get(self.asked) is not self
        return ended or time.monotonic() >= self._until
