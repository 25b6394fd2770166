"""uvicorn's WebSocket protocol with two shortcuts: one writes a ready frame, one receives keystrokes.

A piece of a log that 200 people watch is the same frame for all of them. Through ASGI, each socket would need a turn of
the event loop, a message and a frame of its own. Through an extension of the ASGI scope it is one call with the same
bytes. Through ASGI, a keystroke in a shell would wait for a queue, for a task, and for reading to pause and resume.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

EXTENSION = "trainyard.frames"
KEYS = "trainyard.keys"

# Returns False when the frame cannot be written now: the client does not keep up, or it is closing.
WriteFrame = Callable[[bytes], bool]
# Returns False when these bytes must go through ASGI, like everything else.
TakeBytes = Callable[[bytes], bool]


class Protocol(WebSocketsSansIOProtocol):
    take: TakeBytes | None = None
    # Set by the HTTP protocol that had this connection before: it counts the connections of an address.
    when_lost: Callable[[], None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.when_lost is not None:
            self.when_lost()
        super().connection_lost(exc)

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        # The socket's task has not begun yet. A protocol extension (compression) would change the frames, so the
        # shortcuts are then off.
        if hasattr(self, "scope") and not self.conn.extensions:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[EXTENSION] = self.write_frame
            extensions[KEYS] = self.hand_to

    def write_frame(self, frame: bytes) -> bool:
        ready = self.handshake_complete and self.writable.is_set()
        if not ready or self.close_sent or self.disconnected or self.transport.is_closing():
            return False
        self.transport.write(frame)
        return True

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


def binary_frame(data: bytes) -> bytes:
    """A server's binary message as one whole frame (RFC 6455, 5.2)."""
    size = len(data)
    if size < 126:
        return struct.pack("!BB", 0x82, size) + data
    if size < 1 << 16:
        return struct.pack("!BBH", 0x82, 126, size) + data
    return struct.pack("!BBQ", 0x82, 127, size) + data
