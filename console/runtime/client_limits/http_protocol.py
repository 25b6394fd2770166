"""uvicorn's HTTP protocol with limits for strangers: size and time of a request, and how many connections there are.

uvicorn waits for ever for the rest of a request, keeps all headers that come, and lets Django store any body on disk
before anybody looks at the address. Here a request that is too large, too slow or one too many is answered with an
error as soon as that is known, nothing of it is kept, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import struct
import termios
from functools import partial
from typing import Any
from urllib.parse import unquote

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from console import large_bodies
from console.runtime import websocket_protocol
from console.runtime.client_limits import limits
from console.runtime.client_limits.limits import STALLED_S
from console.runtime.client_limits.open_connections import TooMany, report_refusals

# What a header costs besides its bytes.
HEADER_COST = 64
# Requests that one connection may send before the first is answered.
MAX_PIPELINED = 16
# How long the rest of a refused request is read and dropped, so that the client reads our answer and not a reset.
LINGER_S = 2.0
LINGER_BYTES = 16 * 1024 * 1024
# So much of an upload must come in the time that any other body has as a whole.
LARGE_STEP = 256 * 1024
# How often we look whether a client takes something of its answer.
LOOKS = 12

TEXTS = {
    400: "Too many requests on one connection.",
    408: "The request did not come completely in time.",
    413: "The body of a request may have at most {limits.body_bytes} bytes, and an upload {limits.upload_bytes}.",
    431: "The headers of a request may have at most {limits.head_bytes} bytes.",
    503: "Trainyard has as many connections as it may have. Try again soon.",
}
NO_HANDSHAKE = "This is not the handshake of a WebSocket."


class Protocol(HttpToolsProtocol):
    """One connection of a client."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.limits = limits.current()
        self._peer = ""
        self._counted = False
        # When the present state has lasted too long, with the status to answer then; one timer looks at it.
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._receiving = False
        self._refused = 0
        # How much of an answer the client has not taken, and when that became less.
        self._untaken, self._taken_at = 0, 0.0
        self._head_size = self._body_size = self._without_progress = self._dropped = 0
        self._is_large, self._most_bytes, self._next_look = False, self.limits.body_bytes, LARGE_STEP

    # the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect(self.limits.head_s)
        if len(self.connections) > self.limits.connections:
            report_refusals(f"more than {self.limits.connections} connections", self.client)
            self._refuse(503)
            return
        self._peer = self.limits.proxies.counted(self.client[0] if self.client else "")
        if self._peer:
            try:
                self.limits.by_peer.take(self._peer)
            except TooMany as problem:
                self._refuse(429, str(problem))
                return
            self._counted = True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._counted:
            self._counted = False
            self.limits.by_peer.give_back(self._peer)
        self._stop_timer()
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        self._due = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def handle_websocket_upgrade(self) -> None:
        if self._refused:
            return
        self._due = None
        super().handle_websocket_upgrade()
        protocol = self.transport.get_protocol()
        if isinstance(protocol, websocket_protocol.Protocol):
            self._hand_over_to(protocol)
            if not protocol.handshake_initiated:
                # It has a body, for example. The library would say nothing, and the connection stay open.
                self.transport.write(_response(400, NO_HANDSHAKE))
                self.transport.close()

    def _hand_over_to(self, protocol: websocket_protocol.Protocol) -> None:
        """The socket's protocol has the connection now, and will hear of its end. Nothing keeps this one: a socket is
        open for hours, and there are many.
        """
        if self._counted:
            self._counted = False
            protocol.when_lost = partial(self.limits.by_peer.give_back, self._peer)
        self._stop_timer()
        self.parser = None  # type: ignore[assignment] # it knows this object

    # what comes in

    def data_received(self, data: bytes) -> None:
        if self._refused:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self.transport.abort()
            return
        if not self._receiving:
            self._receiving = True
            self._expect(self.limits.head_s)
        self._without_progress += len(data)
        super().data_received(data)
        if not self._refused and self._without_progress > self.limits.head_bytes:
            # An endless header, or an endless end of a body: no callback has told of any of it.
            self._refused = 431
        if self._refused and not self.transport.is_closing():
            self._refuse(self._refused)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_size = self._body_size = 0
        if not self._receiving:
            # It came together with the request before.
            self._receiving = True
            self._expect(self.limits.head_s)

    def on_url(self, url: bytes) -> None:
        if self._fits(len(url)):
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._fits(len(name) + len(value) + HEADER_COST):
            super().on_header(name, value)

    def _fits(self, size: int) -> bool:
        self._head_size += size
        if self._head_size > self.limits.head_bytes + HEADER_COST * 8:
            self._refused = self._refused or 431
        return not self._refused

    def on_headers_complete(self) -> None:
        self._without_progress = 0
        self._note_large()
        if self._announced_size() > self._most_bytes:
            self._refused = self._refused or 413
        elif len(self.pipeline) >= MAX_PIPELINED:
            self._refused = self._refused or 400
        if not self._refused:
            self._expect(self.limits.body_s)
            super().on_headers_complete()

    def _note_large(self) -> None:
        """An upload may be larger, and take longer as long as it goes on."""
        path = unquote(self.url.partition(b"?")[0].decode("latin-1"))
        self._is_large = large_bodies.is_large(self.parser.get_method().decode("ascii"), path)
        self._most_bytes = self.limits.upload_bytes if self._is_large else self.limits.body_bytes
        self._next_look = LARGE_STEP

    def _announced_size(self) -> int:
        sizes = [value for name, value in self.headers if name == b"content-length"]
        if not sizes:
            return 0
        # The parser has refused everything but digits.
        return int(sizes[0]) if len(sizes[0]) < 20 else self.limits.upload_bytes + 1

    def on_body(self, body: bytes) -> None:
        self._without_progress = 0
        self._body_size += len(body)
        if self._body_size > self._most_bytes:
            self._refused = self._refused or 413
        if self._is_large and self._body_size >= self._next_look:
            self._next_look = self._body_size + LARGE_STEP
            self._expect(self.limits.body_s)
        if self._refused:
            return
        before: bytes | bytearray = self.cycle.body
        if self._is_large and not before:
            # Handed on as it is: uvicorn would copy it into a buffer, and out of it again.
            self.cycle.body = body  # type: ignore[assignment]
            body = b""
        elif isinstance(before, bytes):
            self.cycle.body = bytearray(before)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._without_progress = 0
        self._receiving = False
        self._due = None
        if self.flow.write_paused:
            self._expect(STALLED_S / LOOKS)
        if not self._refused:
            super().on_message_complete()

    # what goes out

    def pause_writing(self) -> None:
        super().pause_writing()
        self._untaken, self._taken_at = self._count_untaken(), self.loop.time()
        self._expect(STALLED_S / LOOKS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._due = None
        if self._receiving:
            self._expect(self.limits.body_s)

    def _count_untaken(self) -> int:
        """The bytes that the client's machine has not received, also those that wait in our kernel."""
        size = self.transport.get_write_buffer_size()
        socket = self.transport.get_extra_info("socket")
        try:
            # The name of SIOCOUTQ in Python.
            waiting = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
        except (AttributeError, OSError, ValueError):
            return size
        return size + int(struct.unpack("i", waiting)[0])

    def _look_at_answer(self) -> None:
        """Wait on for a client that takes its answer, however slowly."""
        now, untaken = self.loop.time(), self._count_untaken()
        if untaken < self._untaken:
            self._untaken, self._taken_at = untaken, now
        if now - self._taken_at < STALLED_S:
            self._expect(STALLED_S / LOOKS)
        else:
            self.transport.abort()

    # time

    def _expect(self, seconds: float) -> None:
        self._due = self.loop.time() + seconds
        if self._timer is None or self._timer_at > self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_at = self.loop.call_at(self._due, self._look_at_time), self._due

    def _look_at_time(self) -> None:
        self._timer = None
        waits = self.flow.write_paused
        # A closing connection stays open until the client has taken what waits for it.
        if self._due is None or (self.transport.is_closing() and not waits):
            return
        if self.loop.time() < self._due - 0.01:
            self._timer, self._timer_at = self.loop.call_at(self._due, self._look_at_time), self._due
        elif waits:
            self._look_at_answer()
        elif self._is_large and self._keeps_waiting():
            self._expect(self.limits.body_s)
        elif self._receiving:
            report_refusals("requests that did not come completely in time", self.client)
            self._refuse(408)
        else:
            # Nothing was asked: there is nobody to tell.
            self.transport.abort()

    def _keeps_waiting(self) -> bool:
        """Whether the client waits for us: its bytes are not read yet, or it has not been told to send them."""
        return self.flow.read_paused or (self.cycle is not None and self.cycle.waiting_for_100_continue)

    def _refuse(self, status: int, text: str = "") -> None:
        """Answer with an error, end what the application does for this connection, and close."""
        self._refused, self._due = status, None
        begun = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if self.cycle is not None and not self.cycle.response_complete:
            # The application sees that its client has gone.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.pipeline.clear()
        self._unset_keepalive_if_required()
        if begun:
            self.transport.abort()
            return
        if status in (413, 431):
            report_refusals(f"requests that are too large ({status})", self.client)
        self.transport.write(_response(status, text or TEXTS[status].format(limits=self.limits)))
        if status in (429, 503):
            # One connection too many is not kept for longer than it takes to say so.
            self.transport.close()
            return
        # Closing at once would send a reset, because the rest of the request was not read, and the answer be lost.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.abort)


def _response(status: int, text: str) -> bytes:
    body = json.dumps({"error": {"code": status, "message": text, "status": STATUS_WORDS[status]}}).encode()
    head = (
        STATUS_LINE[status]
        + b"content-type: application/json\r\nconnection: close\r\n"
        + (b"retry-after: 5\r\n" if status in (429, 503) else b"")
        + b"content-length: %d\r\n\r\n" % len(body)
    )
    return head + body


STATUS_WORDS = {
    400: "INVALID_ARGUMENT",
    408: "DEADLINE_EXCEEDED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    431: "INVALID_ARGUMENT",
    503: "UNAVAILABLE",
}
