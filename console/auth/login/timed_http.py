"""A question by HTTP with one deadline for all of it: the look-up of the name, the way there, TLS and the whole answer.

The time-outs of urllib do not cover the look-up, and count anew with each byte that comes. Proxies of the environment
are used, as urllib does; redirects are not followed.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import urllib.request
from contextlib import suppress
from typing import Any, Final

from agents.infra import name_lookup

TOO_SLOW: Final = "it took too long"


def fetch(request: urllib.request.Request, until: float, most: int) -> bytes:
    """At most so many bytes of the answer, until this time of the monotonic clock. Raises urllib's errors, OSError,
    HTTPException or ValueError."""
    exchange = _Exchange(until)
    timer = threading.Timer(exchange.left(), exchange.end)
    timer.daemon = True
    timer.start()
    try:
        opener = urllib.request.build_opener(_NoRedirects, _Timed(exchange))
        with opener.open(request, timeout=exchange.left()) as answer:
            found: bytes = answer.read(most)
        exchange.left()
        return found
    finally:
        timer.cancel()
        exchange.close()


class _Exchange:
    """The connections of one question. `end` is called from another thread, and ends every wait at once."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []

    def left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError(TOO_SLOW)
        return left

    def connect(self, address: tuple[str, int], *_: object) -> socket.socket:
        """In the place of socket.create_connection."""
        host, port = address
        problem: OSError = OSError("it has no address")
        addresses = list(name_lookup.addresses(host, port, self.left()))
        for tried, each in enumerate(addresses):
            try:
                # An address that says nothing leaves the others their time.
                found = socket.create_connection((each, port), self.left() / (len(addresses) - tried))
                found.settimeout(self.left())
            except OSError as error:
                problem = error
                continue
            with self._lock:
                # Of its own: TLS takes the descriptor away from `found`.
                self._open.append(found.dup())
            return found
        raise problem

    def end(self) -> None:
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            for each in self._open:
                each.close()
            self._open.clear()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class _Timed(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """urllib's connections, each made by the exchange."""

    def __init__(self, exchange: _Exchange) -> None:
        self._trusted = ssl.create_default_context()
        super().__init__(context=self._trusted)
        self._exchange = exchange

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._plain, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._secured, req, context=self._trusted)

    def _plain(self, host: str, **options: Any) -> http.client.HTTPConnection:
        return self._by_exchange(http.client.HTTPConnection(host, **options))

    def _secured(self, host: str, **options: Any) -> http.client.HTTPConnection:
        return self._by_exchange(http.client.HTTPSConnection(host, **options))

    def _by_exchange(self, made: http.client.HTTPConnection) -> http.client.HTTPConnection:
        # What http.client calls to connect, to a proxy too. It has no public name.
        setattr(made, "_create_connection", self._exchange.connect)  # noqa: B010
        return made
