"""The database connection of a thread that works for a moment and then waits for more work.

The thread keeps the connection for a while. A connection from PostgreSQL's pool is most likely one that another thread
used before: to fetch it and to give it back cost as much as a small query, and its server process has other plans
prepared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

# A thread that has found no work for so long gives its connection back to the pool.
KEEP_S = 5.0


@contextmanager
def database_connection() -> Iterator[None]:
    """Use the thread's connection. One that an error has made unusable is closed afterwards."""
    try:
        yield
    finally:
        if connection.errors_occurred and not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def give_back() -> None:
    """Give the connection back: called by a thread that has been idle for KEEP_S. SQLite's stays with the thread."""
    if connection.vendor == "postgresql" and not connection.in_atomic_block:
        connection.close()
