"""Database work of sockets, off the event loop: a few threads of our own.

Not `database_sync_to_async`: by default it runs everything in one thread, and around each call it closes the
connection, which for SQLite means to open the file again for every look of every viewer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from django.db import connections

# Reads are short. More threads would only queue at the database instead of here.
THREADS = 4

P = ParamSpec("P")
T = TypeVar("T")

_pool = ThreadPoolExecutor(THREADS, thread_name_prefix="reads")


async def in_database_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `function` answers, run in a thread that may use the database."""
    return await asyncio.get_running_loop().run_in_executor(_pool, lambda: _run(function, *args, **kwargs))


def _run(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    with returning_connections():
        return function(*args, **kwargs)


@contextmanager
def returning_connections() -> Iterator[None]:
    """For threads that stay: what they borrowed of the database is not theirs when the work is done."""
    try:
        yield
    finally:
        for connection in connections.all(initialized_only=True):
            # A pooled connection goes back to the pool of the process; SQLite's file stays open in this thread.
            if connection.vendor != "sqlite" or connection.errors_occurred or not connection.get_autocommit():
                connection.close()


def close() -> None:
    """End the threads and with them their connections. For tests: a new pool is there afterwards."""
    global _pool
    old, _pool = _pool, ThreadPoolExecutor(THREADS, thread_name_prefix="reads")
    together = threading.Barrier(THREADS)

    def end() -> None:
        together.wait(30)
        connections.close_all()

    for done in [old.submit(end) for _ in range(THREADS)]:
        done.result()
    old.shutdown()
