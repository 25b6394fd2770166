"""The database connection of a thread that works for a moment and then waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def database_connection() -> Iterator[None]:
    """Use a connection for a moment. PostgreSQL's goes back to the pool; SQLite's stays with the thread."""
    try:
        yield
    finally:
        pooled = connection.vendor == "postgresql" or connection.errors_occurred
        if pooled and not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
