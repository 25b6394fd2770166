"""Django's ASGI handler, changed so that each request enters a thread only once.

Django's own handler switches threads twice for each middleware and gives each request a new thread, in which SQLite's
file is opened again: this is more than half of the cost of a small request. Here the whole middleware chain runs in
one thread of a small permanent pool. A response that is streamed is made part by part in the same threads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar, cast

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase

from console.runtime.database_threads import returning_connections

P = ParamSpec("P")
T = TypeVar("T")

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

# A request that waits for a locked database holds a thread. The event loop reads bodies and sends responses.
THREADS = 16


class ThreadedHandler(ASGIHandler):
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="request")
        super().__init__()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        # Skips Django's context of one thread per request: here no part of a request is bound to a thread.
        await self.handle(scope, receive, send)

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = await self._in_thread(self._answer)(request)
        if isinstance(response, StreamingHttpResponse) and not response.is_async:
            response.streaming_content = self._stream(cast("Iterator[bytes]", response.streaming_content))
        return response

    def _in_thread(self, function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
        return sync_to_async(function, thread_sensitive=False, executor=self._threads)

    async def _stream(self, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
        """The parts of a plain iterator. Each is made in a thread when the one before it has been sent: Django itself
        would make all of them before it sends the first.
        """
        make = self._in_thread(_next_part)
        while (part := await make(parts)) is not None:
            yield part

    def _answer(self, request: HttpRequest) -> HttpResponseBase:
        with returning_connections():
            return self.get_response(request)


def _next_part(parts: Iterator[bytes]) -> bytes | None:
    with returning_connections():
        return next(parts, None)
