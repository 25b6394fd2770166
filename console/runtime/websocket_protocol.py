"""uvicorn's WebSocket protocol with two shortcuts, and without patience for clients whose path is cut.

One shortcut writes a ready frame, the other receives keystrokes.

A piece of a log that 200 people watch is the same frame for all of them. Through ASGI, each socket would need a turn of
the event loop, a message and a frame of its own. Through an extension of the ASGI scope it is one call with the same
bytes. Through ASGI, a keystroke in a shell would wait for a queue, for a task, and for reading to pause and resume.

A connection whose path is cut would stay open until TCP gives up, for a quarter of an hour, with all that was sent to
it in memory: a polite close waits until that is delivered. So a client that answers no ping, or that takes nothing of
what waits for it, is cut off.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import apply_mask  # type: ignore[attr-defined] # in C where the library has that
from websockets.protocol import OPEN

# A final frame with bytes; the bit of a masked one; its head with the mask; and how long a key, or a few, may be.
BINARY, MASKED, KEY_HEAD, MAX_KEY = 0x82, 0x80, 6, 125

EXTENSION = "trainyard.frames"
KEYS = "trainyard.keys"
NOW = "trainyard.echoes"

# A client that takes nothing for so long is cut off. uvicorn's pings find those for whom nothing waits.
STALLED_AFTER_S = 30.0
LOOK_EVERY_S = 5.0

# Returns False when the frame cannot be written now: the client does not keep up, or it is closing.
WriteFrame = Callable[[bytes], bool]
# Returns False when these bytes must go through ASGI, like everything else.
TakeBytes = Callable[[bytes], bool]


class Protocol(WebSocketsSansIOProtocol):
    take: TakeBytes | None = None
    # Whether the library's parser waits for the first byte of a message. Looked at after the library has read, when
    # nobody waits: each step before a key is passed on delays its echo.
    between_messages = False
    # The socket's descriptor, where bytes go through it as they are.
    fd = -1
    # Set by the HTTP protocol that had this connection before: it counts the connections of an address.
    when_lost: Callable[[], None] | None = None
    stall_timer: asyncio.TimerHandle | None = None

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        # The socket's task has not begun yet. A protocol extension (compression) would change the frames, so the
        # shortcuts are then off.
        if hasattr(self, "scope") and not self.conn.extensions:
            connection = self.transport.get_extra_info("socket")
            if connection is not None and self.transport.get_extra_info("ssl_object") is None:
                self.fd = connection.fileno()
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[EXTENSION] = self.write_frame
            extensions[NOW] = self.write_now
            extensions[KEYS] = self.hand_to

    def pause_writing(self) -> None:
        super().pause_writing()
        self.look_later(self.transport.get_write_buffer_size(), self.loop.time())

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stop_looking()

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_looking()
        if self.when_lost is not None:
            self.when_lost()
        super().connection_lost(exc)

    def keepalive_timeout(self) -> None:
        if self.read_paused and self.ping_timeout is not None:
            # The answer may be among what we have not read yet.
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
        else:
            self.transport.abort()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.close_timer is not None and message["type"] == "websocket.close":
            self.close_timer.cancel()
            self.close_timer = self.loop.call_later(self.close_timeout, self.transport.abort)

    def handle_close(self, event: Any) -> None:
        super().handle_close(event)
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self.loop.call_later(STALLED_AFTER_S, self.transport.abort)

    def look_later(self, waiting: int, since: float) -> None:
        """Look again whether the client takes what waits for it: `waiting` bytes, of which nothing went `since`."""
        self.stop_looking()
        self.stall_timer = self.loop.call_later(LOOK_EVERY_S, self.look, waiting, since)

    def look(self, waiting: int, since: float) -> None:
        now, left = self.loop.time(), self.transport.get_write_buffer_size()
        if left < waiting:
            self.look_later(left, now)
        elif now - since < STALLED_AFTER_S:
            self.look_later(waiting, since)
        else:
            self.transport.abort()

    def stop_looking(self) -> None:
        if self.stall_timer is not None:
            self.stall_timer.cancel()
            self.stall_timer = None

    def data_received(self, data: bytes) -> None:
        # One whole, short, masked binary message (RFC 6455, 5.2), before which nothing waits: a key. The library needs
        # twice the time for it.
        size = len(data) - KEY_HEAD
        if (
            0 < size <= MAX_KEY
            and self.between_messages
            and self.take is not None
            and data[0] == BINARY
            and data[1] == MASKED | size
            and self.conn.state is OPEN
            and not self.read_paused  # no message waits for the application
            and not self.close_sent
            and self.take(apply_mask(data[KEY_HEAD:], data[2:KEY_HEAD]))
        ):
            return
        super().data_received(data)
        self.between_messages = self.conn.current_size is None and self.is_between_frames()

    def is_between_frames(self) -> bool:
        """Whether the library's parser, generators within each other, waits for the first byte of a frame."""
        innermost: Any = self.conn.parser
        while (inner := innermost.gi_yieldfrom) is not None:
            innermost = inner
        return bool(innermost.__name__ == "at_eof")

    def write_frame(self, frame: bytes) -> bool:
        ready = self.handshake_complete and self.writable.is_set()
        if not ready or self.close_sent or self.disconnected or self.transport.is_closing():
            return False
        self.transport.write(frame)
        return True

    def write_now(self, frame: bytes) -> bool:
        """Write a short frame to the socket at once: uvloop writes at the end of its turn, and an echo would wait."""
        if self.fd < 0 or self.transport.get_write_buffer_size():
            return self.write_frame(frame)
        if self.close_sent or self.disconnected or self.transport.is_closing():
            return False
        try:
            frame = frame[os.write(self.fd, frame) :]
        except BlockingIOError:
            pass
        except OSError:
            return False  # the transport finds the end of the connection when it reads
        return self.write_frame(frame) if frame else True

    def hand_to(self, take: TakeBytes) -> None:
        self.take = take

    def handle_bytes(self, event: Any) -> None:
        # Never overtake bytes that still wait for the application: the order is kept.
        at_once = self.take is not None and event.fin and self.queue.empty() and not self.close_sent
        if not (at_once and self.take(bytes(event.data))):  # type: ignore[misc]
            super().handle_bytes(event)


def receive_directly(scope: Mapping[str, Any], take: TakeBytes) -> None:
    """Pass whole binary messages directly to `take`, on the event loop, where the server supports this."""
    hand_to = scope.get("extensions", {}).get(KEYS)
    if hand_to is not None:
        hand_to(take)


def direct_writer(scope: Mapping[str, Any]) -> WriteFrame | None:
    """The function that writes a frame directly. None under another server, or in a test."""
    found: WriteFrame | None = scope.get("extensions", {}).get(EXTENSION)
    return found


def writer_of_echoes(scope: Mapping[str, Any]) -> WriteFrame | None:
    """The function that writes a short frame at once. None under another server, or in a test."""
    found: WriteFrame | None = scope.get("extensions", {}).get(NOW)
    return found


def binary_frame(data: bytes) -> bytes:
    """A server's binary message as one whole frame (RFC 6455, 5.2)."""
    return bytes((BINARY, len(data))) + data if len(data) <= MAX_KEY else _frame(BINARY, data)


def text_frame(text: str) -> bytes:
    return _frame(0x81, text.encode())


def _frame(head: int, data: bytes) -> bytes:
    size = len(data)
    if size < 126:
        return struct.pack("!BB", head, size) + data
    if size < 1 << 16:
        return struct.pack("!BBH", head, 126, size) + data
    return struct.pack("!BBQ", head, 127, size) + data
