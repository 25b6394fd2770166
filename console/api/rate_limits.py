"""How many requests one API token may send: as many at once as in a minute, then one after another at that rate.

Each web process counts for itself, in memory: a restart forgets it. A script in an endless loop is slowed down, so that
pages stay quick; it is no account of anything.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from threading import Lock

# Tokens that have not been used for long are forgotten first.
MAX_TOKENS = 10_000
MINUTE_S = 60.0


class TooManyRequests(Exception):
    """Somebody asks for too much. `retry_after_s`: in how many whole seconds to ask again."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RateLimit:
    """Counts requests by token. Requests come in many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left: OrderedDict[int, tuple[float, float]] = OrderedDict()

    def take(self, token: int, limit: int, now: float | None = None) -> None:
        """Count one request. `limit`: for a minute; 0 for none. Raises TooManyRequests, and does not count that."""
        if not limit:
            return
        now = time.monotonic() if now is None else now
        with self._lock:
            left, at = self._left.pop(token, (float(limit), now))
            left = min(float(limit), left + (now - at) * limit / MINUTE_S)
            allowed = left >= 1
            self._left[token] = (left - 1 if allowed else left, now)
            while len(self._left) > MAX_TOKENS:
                self._left.popitem(last=False)
        if not allowed:
            wait_s = math.ceil((1 - left) * MINUTE_S / limit)
            raise TooManyRequests(
                f"This token has sent more than {limit} requests in a minute. Wait {wait_s} s; poll less often, or "
                "follow the job by a socket.",
                wait_s,
            )


OF_TOKENS = RateLimit()
