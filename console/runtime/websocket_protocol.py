"""uvicorn's WebSocket protocol, with a short way out for what goes to many sockets at once, and one in for keys.

A piece of a log that 200 people watch is the same frame for each of them. Through ASGI it costs each of their tasks a
turn of the loop, a message and a frame of its own; as an extension of the scope it is one call, with the same bytes.
A key that is typed into a shell would wait for a queue, a task, and for reading to be paused and begun again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

EXTENSION = "trainyard.frames"
KEYS = "trainyard.keys"

# False where the frame cannot be written now: the other end does not keep up, or goes.
WriteFrame = Callable[[bytes], bool]
# False where these bytes are to come by ASGI, as all else does.
TakeBytes = Callable[[bytes], bool]


class Protocol(WebSocketsSansIOProtocol):
    take: TakeBytes | None = None

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        # Its task has not begun yet. With an extension of the protocol (compression) a frame is not what it was.
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
        # Never past what still waits for the application: bytes keep their order.
        at_once = self.take is not None and event.fin and self.queue.empty() and not self.close_sent
        if not (at_once and self.take(bytes(event.data))):  # type: ignore[misc]
            super().handle_bytes(event)


def receive_directly(scope: Mapping[str, Any], take: TakeBytes) -> None:
    """Let whole binary messages come to `take`, on the event loop, where the server can do so."""
    hand_to = scope.get("extensions", {}).get(KEYS)
    if hand_to is not None:
        hand_to(take)


def direct_writer(scope: Mapping[str, Any]) -> WriteFrame | None:
    """None where another server, or a test, stands at the door."""
    found: WriteFrame | None = scope.get("extensions", {}).get(EXTENSION)
    return found


def binary_frame(data: bytes) -> bytes:
    """One binary message of a server, whole (RFC 6455, 5.2)."""
    size = len(data)
    if size < 126:
        return struct.pack("!BB", 0x82, size) + data
    if size < 1 << 16:
        return struct.pack("!BBH", 0x82, 126, size) + data
    return struct.pack("!BBQ", 0x82, 127, size) + data
