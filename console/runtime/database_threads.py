"""Runs the database work of sockets in a small pool of threads, outside the event loop.

`database_sync_to_async` is not used: by default it runs everything in one thread, and it closes the connection around
each call, so that SQLite would open the file again for every query of every viewer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from django.db import OperationalError, connections

from agents.infra import clock

# Reads are short. With more threads, calls would queue at the database instead of here.
THREADS = 4
# Checks of permissions have threads of their own: pages that are rendered must not delay the loss of a right.
CHECK_THREADS = 2
# So have fragments of pages. Pages that come back together open one after the other, because a browser dials one
# WebSocket to a server at a time, and each handshake would wait for what those before it have rendered.
RENDER_THREADS = 2
# So have downloads: one person may have many under way, some of which search all they read. Lines and keys go first.
DOWNLOAD_THREADS = 2

P = ParamSpec("P")
T = TypeVar("T")

_pool = ThreadPoolExecutor(THREADS, thread_name_prefix="reads")
_checks = ThreadPoolExecutor(CHECK_THREADS, thread_name_prefix="checks")
_renders = ThreadPoolExecutor(RENDER_THREADS, thread_name_prefix="renders")
_downloads = ThreadPoolExecutor(DOWNLOAD_THREADS, thread_name_prefix="downloads")


async def in_database_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function` in a thread that may use the database, and return its result."""
    return await asyncio.get_running_loop().run_in_executor(_pool, lambda: _run(function, *args, **kwargs))


async def in_check_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `in_database_thread`, in the threads that check permissions only."""
    return await asyncio.get_running_loop().run_in_executor(_checks, lambda: _run(function, *args, **kwargs))


async def in_render_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `in_database_thread`, in the threads that render fragments of pages only."""
    return await asyncio.get_running_loop().run_in_executor(_renders, lambda: _run(function, *args, **kwargs))


async def in_download_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `in_database_thread`, in the threads that read what is downloaded only."""
    return await asyncio.get_running_loop().run_in_executor(
        _downloads, lambda: _run(function, *args, **kwargs)
    )


def _run(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    if not clock.is_known():
        # As TimeIsKnown does for requests: nothing may be dated by a clock that may be wrong.
        raise OperationalError("the database has not answered since this process began")
    with returning_connections():
        return function(*args, **kwargs)


@contextmanager
def returning_connections() -> Iterator[None]:
    """Return the connections to the pool after the work. For threads that live longer than one piece of work."""
    try:
        yield
    finally:
        return_connections()


def return_connections() -> None:
    for connection in connections.all(initialized_only=True):
        # Closing a pooled connection returns it to the process's pool. SQLite's file stays open in this thread.
        if connection.vendor != "sqlite" or connection.errors_occurred or not connection.get_autocommit():
            connection.close()


def close() -> None:
    """For tests: end the threads with their connections, and start new pools."""
    global _pool, _checks, _renders, _downloads
    old, _pool = _pool, ThreadPoolExecutor(THREADS, thread_name_prefix="reads")
    _end(old, THREADS)
    old, _checks = _checks, ThreadPoolExecutor(CHECK_THREADS, thread_name_prefix="checks")
    _end(old, CHECK_THREADS)
    old, _renders = _renders, ThreadPoolExecutor(RENDER_THREADS, thread_name_prefix="renders")
    _end(old, RENDER_THREADS)
    old, _downloads = _downloads, ThreadPoolExecutor(DOWNLOAD_THREADS, thread_name_prefix="downloads")
    _end(old, DOWNLOAD_THREADS)


def _end(pool: ThreadPoolExecutor, threads: int) -> None:
    together = threading.Barrier(threads)

    def end() -> None:
        together.wait(30)
        connections.close_all()

    for done in [pool.submit(end) for _ in range(threads)]:
        done.result()
    pool.shutdown()
