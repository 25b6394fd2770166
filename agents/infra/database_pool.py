"""The pool of connections to PostgreSQL that a process has: how large it is, and how soon it works after an outage.

While the database is away, the pool waits 1, 2, 4, 8 s and so on between its attempts to connect, and whoever waits for
a connection waits as long. Here each attempt ends after a second, and a new one begins if anybody waits.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from django.db import connection

# One attempt to connect: a try at once, and one after this time.
ATTEMPT_S = 1.0
# How often a process says why it cannot connect.
SAY_EVERY_S = 30.0


def options() -> dict[str, Any]:
    return {
        "min_size": 1,
        "max_size": 26,
        "timeout": 20,
        "max_idle": 120,
        "reconnect_timeout": ATTEMPT_S,
        "reconnect_failed": _try_again,
    }


def give_back() -> None:
    """Return this thread's connection before a step that takes long and asks nothing: others may need it meanwhile."""
    # SQLite's file stays open in its thread.
    if connection.vendor == "postgresql" and not connection.in_atomic_block:
        connection.close()


def _try_again(pool: Any) -> None:
    """An attempt failed. If nobody waits, the next who asks begins a new one."""
    if pool.get_stats().get("requests_waiting"):
        pool.check()


def renew(pool: Any) -> None:
    """Replace the connections that an outage has broken: otherwise each fails whoever is given it next."""
    if pool is not None and not pool.closed:
        pool.check()


class SayRarely(logging.Filter):
    """Lets the same message pass once in a while: the pool tells each try of an outage."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        with self._lock:
            if now - self._said.get(record.msg, -SAY_EVERY_S) < SAY_EVERY_S:
                return False
            self._said[record.msg] = now
        return True
