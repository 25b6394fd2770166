"""uvicorn's WebSocket protocol, with a short way out for what goes to many sockets at once.

A piece of a log that 200 people watch is the same frame for each of them. Through ASGI it costs each of their tasks a
turn of the loop, a message and a frame of its own; as an extension of the scope it is one call, with the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

EXTENSION = "trainyard.frames"

# False where the frame cannot be written now: the other end does not keep up, or goes.
Write = Callable[[bytes], bool]


class Protocol(WebSocketsSansIOProtocol):
    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        # Its task has not begun yet. With an extension of the protocol (compression) a frame is not what it was.
        if hasattr(self, "scope") and not self.conn.extensions:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[EXTENSION] = self.write_frame

    def write_frame(self, frame: bytes) -> bool:
        ready = self.handshake_complete and self.writable.is_set()
        if not ready or self.close_sent or self.disconnected or self.transport.is_closing():
            return False
        self.transport.write(frame)
        return True


def write_of(scope: Mapping[str, Any]) -> Write | None:
    """None where another server, or a test, stands at the door."""
    found: Write | None = scope.get("extensions", {}).get(EXTENSION)
    return found


def frame(data: bytes) -> bytes:
    """One binary message of a server, whole (RFC 6455, 5.2)."""
    size = len(data)
    if size < 126:
        return struct.pack("!BB", 0x82, size) + data
    if size < 1 << 16:
        return struct.pack("!BBH", 0x82, 126, size) + data
    return struct.pack("!BBQ", 0x82, 127, size) + data
