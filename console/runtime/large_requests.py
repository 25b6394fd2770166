"""Receives large bodies into files, between two calls of a view (console/large_bodies.py says why)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.http import HttpResponse

from console.large_bodies import PIECE, BodyWanted, Received, Sink
from console.runtime.database_threads import returning_connections

log = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[Mapping[str, Any]]]

# Threads that write and hash. One keeps up with a network of 10 Gbit/s.
THREADS = 4
# How many bodies a web process receives at the same time. Each takes three pieces of memory.
MOST_AT_ONCE = 64
# How much of a refused body is read and dropped, and for how long, so that the client reads the answer and not a reset.
DROPPED_BYTES = 16 * 1024 * 1024
DROPPED_S = 2.0

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="upload")
_open = 0


async def receive_body(wanted: BodyWanted, receive: Receive) -> Received | None:
    """Receive the body into the sink that the view has made. None when too many come at this moment."""
    global _open
    if _open >= MOST_AT_ONCE:
        await discard(wanted.sink)
        return None
    _open += 1
    try:
        return await _pump(wanted.sink, receive)
    except BaseException:
        _threads.submit(_run, wanted.sink.discard)
        raise
    finally:
        _open -= 1


async def _pump(sink: Sink, receive: Receive) -> Received:
    """While a piece is written, the next one is received."""
    writing: asyncio.Future[None] | None = None
    buffer = bytearray()
    try:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return Received(sink, complete=False)
            buffer += message.get("body", b"")
            more = message.get("more_body", False)
            if len(buffer) >= PIECE or not more:
                if writing is not None:
                    await writing
                writing = _in_thread(sink.write, bytes(buffer))
                buffer.clear()
        if writing is not None:
            await writing
            writing = None
        return Received(sink, complete=True)
    except Exception as problem:
        writing = None
        return Received(sink, complete=False, problem=problem)
    finally:
        if writing is not None:
            await asyncio.wait([writing])
            # What it raised is of no interest where the client has gone.
            writing.exception()


async def discard(sink: Sink) -> None:
    await _in_thread(sink.discard)


def _in_thread(function: Callable[..., None], *args: object) -> asyncio.Future[None]:
    return asyncio.get_running_loop().run_in_executor(_threads, _run, function, *args)


def _run(function: Callable[..., None], *args: object) -> None:
    """A sink reserves room in the quota, in the database."""
    with returning_connections():
        function(*args)


async def drop_rest(receive: Receive, headers: list[tuple[bytes, bytes]]) -> bool:
    """Read and drop what a client still sends of a refused body. True where it has come to its end."""
    if any(name == b"expect" for name, _ in headers):
        # It waits for our word and has sent nothing.
        return False
    dropped = 0
    try:
        async with asyncio.timeout(DROPPED_S):
            while dropped < DROPPED_BYTES:
                message = await receive()
                dropped += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return True
    except TimeoutError:
        pass
    return False


def too_many() -> HttpResponse:
    text = '{"error": {"code": 503, "message": "Too many uploads at this moment. Try again.", "status": "UNAVAILABLE"}}'
    return HttpResponse(text, status=503, content_type="application/json", headers={"Retry-After": "5"})
