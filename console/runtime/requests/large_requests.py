"""Receives large bodies into files, between two calls of a view (console/large_bodies.py says why)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from django.http import HttpResponse

from agents.infra.places import Places
from console.large_bodies import PIECE, BodyWanted, Received, Sink
from console.runtime.database_threads import returning_connections

log = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[Mapping[str, Any]]]

# Threads that write and hash. One keeps up with a network of 10 Gbit/s.
THREADS = 4
# How many uploads a web process has at the same time, each from its first byte until it is stored; of one project, half
# as many. While it is received it takes three pieces of memory; then a file waits for the storage.
MOST_AT_ONCE = 64
# Parts of a body that are smaller are copied.
SMALL = 16 * 1024
# How often the reservation of one that waits is renewed.
RENEWED_S = 60.0
# How much of a refused body is read and dropped, and for how long, so that the client reads the answer and not a reset.
DROPPED_BYTES = 16 * 1024 * 1024
DROPPED_S = 2.0

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="upload")
# By share (of a project, or of a person): its uploads that are under way, each until it is stored. Uploads of one to a
# slow storage do not turn those of the next one away.
places = Places(MOST_AT_ONCE)


async def receive_body(wanted: BodyWanted, receive: Receive) -> Received:
    """Receive the body into the sink that the view has made."""
    try:
        return await _pump(wanted.sink, receive)
    except BaseException:
        _threads.submit(_run, wanted.sink.discard)
        raise


@asynccontextmanager
async def turn(turns: asyncio.Semaphore, sink: Sink, receive: Receive) -> AsyncIterator[bool]:
    """The turn of a complete body to be stored. What it has reserved of the quota stays reserved while it waits.

    False where the client has gone meanwhile. It was told nothing, so it sends the file again, or goes on.
    """
    taken = asyncio.ensure_future(turns.acquire())
    gone = asyncio.ensure_future(_until_gone(receive))
    try:
        # Where the storage is not slow, nobody waits.
        await asyncio.sleep(0)
        while not (taken.done() or gone.done()):
            await _in_thread(sink.renew)
            await asyncio.wait({taken, gone}, timeout=RENEWED_S, return_when=asyncio.FIRST_COMPLETED)
        yield taken.done() and not gone.done()
    finally:
        gone.cancel()
        if taken.done() and not taken.cancelled():
            turns.release()
        taken.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _pump(sink: Sink, receive: Receive) -> Received:
    """While a piece is written, the next one is received."""
    writing: asyncio.Future[None] | None = None
    # As they came: to put them together would copy each byte twice on the event loop, which all requests share.
    parts: list[bytes | bytearray] = []
    size = 0
    try:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return Received(sink, complete=False)
            size += _add(parts, message.get("body", b""))
            more = message.get("more_body", False)
            if size >= PIECE or not more:
                if writing is not None:
                    await writing
                writing = _in_thread(_write, sink, parts)
                parts, size = [], 0
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


def _add(parts: list[bytes | bytearray], data: bytes) -> int:
    """A client may send its body byte by byte: what is small is put together, or its objects would take the memory."""
    if len(data) >= SMALL:
        parts.append(data)
    elif parts and isinstance(parts[-1], bytearray):
        parts[-1] += data
    else:
        parts.append(bytearray(data))
    return len(data)


def _write(sink: Sink, parts: list[bytes | bytearray]) -> None:
    for part in parts:
        sink.write(bytes(part))


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
