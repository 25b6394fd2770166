"""How long one search may work, and that each person has one search at a time.

A search ends early when its time is over, or when the same person has begun another one in this process. What it has
found by then is its answer, which says where to continue. So nobody waits for a search, and it needs no lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from types import TracebackType

# The time of one request. It goes on with the next request, so a long log only needs more of them.
MAX_S = 0.5

_lock = threading.Lock()
_newest: dict[Hashable, SearchBudget] = {}


class SearchBudget:
    """The budget of one request. A search looks at `spent` after each part, and always searches at least one part."""

    def __init__(self, person: Hashable, seconds: float = MAX_S) -> None:
        self.person = person
        self._until = time.monotonic() + seconds

    def __enter__(self) -> SearchBudget:
        with _lock:
            _newest[self.person] = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _lock:
            if _newest.get(self.person) is self:
                del _newest[self.person]

    def spent(self) -> bool:
        return time.monotonic() >= self._until or _newest.get(self.person) is not self
