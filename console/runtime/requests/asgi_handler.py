"""Django's ASGI handler, changed so that each request enters a thread only once.

Django's own handler switches threads twice for each middleware and gives each request a new thread, in which SQLite's
file is opened again: this is more than half of the cost of a small request. Here the whole middleware chain runs in
one thread of a small permanent pool. A response that is streamed is made part by part in the same threads. Requests
that wait for another machine have pools of their own (waiting_requests.py).
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, ParamSpec, TypeVar, cast

from asgiref.sync import sync_to_async
from django.core import signals
from django.core.handlers.asgi import ASGIHandler
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from agents.infra.places import AllTaken
from console import large_bodies
from console.auth.login import oidc_server
from console.large_bodies import BodyWanted, Received
from console.runtime.database_threads import returning_connections
from console.runtime.requests import large_requests, waiting_requests
from console.runtime.requests.waiting_requests import Work
from jobs.artifacts.incoming import Incoming
from jobs.maintenance import edit_host
from jobs.outputs import work_directories

P = ParamSpec("P")
T = TypeVar("T")

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

# A request that waits for a locked database holds a thread. The event loop reads bodies and sends responses.
THREADS = 16
# Each of these may wait for a storage elsewhere. It has no connection to the database meanwhile.
STORAGE_THREADS = 8
# More than may wait there, so that whoever gets no place is told so.
SPARE_THREADS = 2
LOGIN_THREADS = oidc_server.places.most + SPARE_THREADS
_AT_HOSTS = (work_directories.dials, work_directories.transfers, edit_host.tries)
FETCH_THREADS = sum(places.most for places in _AT_HOSTS) + SPARE_THREADS


class ThreadedHandler(ASGIHandler):
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=Work.NONE.value)
        apart = {
            Work.READS: STORAGE_THREADS,
            Work.STORES: STORAGE_THREADS,
            Work.LOGS_IN: LOGIN_THREADS,
            Work.FETCHES: FETCH_THREADS,
        }
        self._pools = {Work.NONE: self._threads} | {
            work: ThreadPoolExecutor(threads, thread_name_prefix=work.value)
            for work, threads in apart.items()
        }
        self._turns = asyncio.Semaphore(STORAGE_THREADS)
        super().__init__()

    def close(self) -> None:
        """For tests: end the threads with their connections."""
        for pool in self._pools.values():
            pool.submit(connections.close_all).result()
            pool.shutdown()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        # Skips Django's context of one thread per request: here no part of a request is bound to a thread.
        if large_bodies.is_large(scope["method"], scope["path"]):
            await self._handle_large(scope, receive, send)
        else:
            await self.handle(scope, receive, send)

    async def _handle_large(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """A request whose body goes into a file: the view is called before it comes, and after."""
        set_script_prefix("/")
        await signals.request_started.asend(sender=self.__class__, scope=scope)
        response: HttpResponseBase | None = await self._call(scope, io.BytesIO(), None)
        rest = True
        if isinstance(response, BodyWanted):
            sink = response.sink
            try:
                with large_requests.places.place(sink.share):
                    response, rest = await self._receive_and_store(scope, response, receive)
            except AllTaken:
                await large_requests.discard(sink)
                response = large_requests.too_many()
        if response is None:
            return
        if rest and not await large_requests.drop_rest(receive, scope["headers"]):
            response.headers["Connection"] = "close"
        await self.send_response(response, send)
        await self._in_thread(response.close)()

    async def _receive_and_store(
        self, scope: dict[str, Any], wanted: BodyWanted, receive: Receive
    ) -> tuple[HttpResponseBase | None, bool]:
        """The answer to a body, None where its client has gone; and whether some of the body may not have come."""
        found = await large_requests.receive_body(wanted, receive)
        try:
            if not found.complete:
                # Nothing is stored, so nothing is waited for.
                return await self._call_with(scope, wanted, found), found.problem is not None
            async with large_requests.turn(self._turns, found.sink, receive) as is_there:
                return await self._call_with(scope, wanted, found) if is_there else None, False
        finally:
            await large_requests.discard(found.sink)

    async def _call_with(
        self, scope: dict[str, Any], wanted: BodyWanted, found: Received
    ) -> HttpResponseBase:
        """The second call, with the body that came."""
        if wanted.as_form and isinstance(found.sink, Incoming) and found.complete:
            with found.sink.path.open("rb") as file:
                return await self._call(scope, file, found)
        return await self._call(scope, io.BytesIO(), found)

    async def _call(self, scope: dict[str, Any], body: IO[bytes], found: Received | None) -> HttpResponseBase:
        request, problem = self.create_request(scope, body)
        if request is None:
            return cast("HttpResponseBase", problem)
        setattr(request, large_bodies.RECEIVED, found)
        # The token of a form stands in its body. Nothing is done before the second call, which looks for it.
        if found is None:
            request._dont_enforce_csrf_checks = True  # type: ignore[attr-defined]
        response: HttpResponseBase = await self.run_get_response(request)
        return response

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        work = waiting_requests.work_of(request)
        response: HttpResponseBase = await self._in_thread(self._answer, work)(request)
        if isinstance(response, StreamingHttpResponse) and not response.is_async:
            response.streaming_content = self._stream(
                cast("Iterator[bytes]", response.streaming_content), work
            )
        return response

    def _in_thread(
        self, function: Callable[P, T], work: Work = Work.NONE
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        return sync_to_async(function, thread_sensitive=False, executor=self._pools[work])

    async def _stream(self, parts: Iterator[bytes], work: Work) -> AsyncIterator[bytes]:
        """The parts of a plain iterator. Each is made in a thread when the one before it has been sent: Django itself
        would make all of them before it sends the first.
        """
        make = self._in_thread(_next_part, work)
        while (part := await make(parts)) is not None:
            yield part

    def _answer(self, request: HttpRequest) -> HttpResponseBase:
        with returning_connections():
            return self.get_response(request)


def _next_part(parts: Iterator[bytes]) -> bytes | None:
    with returning_connections():
        return next(parts, None)
