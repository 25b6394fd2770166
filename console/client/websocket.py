"""A WebSocket client (RFC 6455), as far as the console speaks it: no extensions, no fragments to send."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import select
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from .connection import Target, offline
from .errors import Offline

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
# The console says something every 3 s. A path that is silent for longer is cut.
SILENT_S = 9.0
MAX_MESSAGE = 64 * 1024 * 1024
# Close codes that another attempt would not change.
FINAL = frozenset({4400, 4403, 4404})


class Closed(Exception):
    """The console has closed the socket, or refused it (`code` is then the status of HTTP)."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class WebSocket:
    """A socket that is open. `messages()` are what has come: a document, or bytes."""

    def __init__(self, target: Target, path: str, timeout: float = 10.0) -> None:
        self.url = target.url
        connection = target.dial(timeout)
        self._socket: socket.socket = connection.sock
        self._received = b""
        self._parts: list[bytes] = []
        try:
            self._shake_hands(target, path)
        except OSError as problem:
            self.close()
            raise offline(self.url, problem) from None
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def _shake_hands(self, target: Target, path: str) -> None:
        key = base64.b64encode(os.urandom(16))
        host = target.url.partition("://")[2].partition("/")[0]
        lines = [
            f"GET {target.base}{path} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
        ]
        lines += [f"Sec-WebSocket-Key: {key.decode()}", "Sec-WebSocket-Version: 13"]
        lines += [f"{name}: {value}" for name, value in target.headers().items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        while b"\r\n\r\n" not in self._received:
            more = self._socket.recv(65536)
            if not more or len(self._received) > 65536:
                raise Offline("The console has closed the connection.", "Try again.")
            self._received += more
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        status = head.split(b" ", 2)[1:2]
        wanted = base64.b64encode(hashlib.sha1(key + MAGIC).digest()).lower()
        if status != [b"101"]:
            raise Closed(
                int(status[0]) if status and status[0].isdigit() else 0, "The console refuses the socket."
            )
        if wanted not in head.lower():
            raise Offline("What answers is no WebSocket.", "A proxy in between may not let WebSockets pass.")

    def send(self, message: dict[str, Any]) -> None:
        self._send(TEXT, json.dumps(message).encode())

    def send_bytes(self, data: bytes) -> None:
        self._send(BINARY, data)

    def _send(self, kind: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", 0x80 | kind, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, size)
        mask = os.urandom(4)
        try:
            self._socket.settimeout(SILENT_S)
            self._socket.sendall(head + mask + _masked(data, mask))
        except OSError as problem:
            raise offline(self.url, problem) from None

    def wait(self, timeout: float, *others: int) -> list[int]:
        """Wait until something can be read here or from one of the other files. Returns those that can be read."""
        if self._received and self._has_frame() or self._pending():
            timeout = 0.0
        files: list[int] = [self.fileno(), *others]
        ready, _, _ = select.select(files, [], [], timeout)
        if self.fileno() not in ready and (self._pending() or self._has_frame()):
            ready.append(self.fileno())
        return ready

    def _pending(self) -> bool:
        """TLS may hold bytes that the system does not know of any more."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def messages(self, timeout: float = SILENT_S) -> Iterator[dict[str, Any] | bytes]:
        """What has come, after at most one read. Raises Closed at the end, Offline where the path is cut."""
        if not self._has_frame():
            try:
                self._socket.settimeout(timeout)
                more = self._socket.recv(256 * 1024)
            except OSError as problem:
                raise offline(self.url, problem) from None
            if not more:
                raise Offline("The connection was cut.", "Try again.")
            self._received += more
        while (frame := self._next_frame()) is not None:
            message = self._understood(*frame)
            if message is not None:
                yield message

    def _has_frame(self) -> bool:
        found = _frame(self._received)
        return found is not None

    def _next_frame(self) -> tuple[int, bool, bytes] | None:
        found = _frame(self._received)
        if found is None:
            return None
        kind, is_last, start, end = found
        data, self._received = self._received[start:end], self._received[end:]
        return kind, is_last, data

    def _understood(self, kind: int, is_last: bool, data: bytes) -> dict[str, Any] | bytes | None:
        if kind == PING:
            self._send(PONG, data)
        elif kind == CLOSE:
            code = struct.unpack("!H", data[:2])[0] if len(data) >= 2 else 1005
            raise Closed(code, data[2:].decode("utf-8", "replace"))
        elif kind in (0, TEXT, BINARY):
            if kind:
                self._kind = kind
            self._parts.append(data)
            if is_last:
                whole, self._parts = b"".join(self._parts), []
                return whole if self._kind == BINARY else _document(whole)
        return None

    def close(self) -> None:
        with suppress(Offline, OSError, AttributeError):
            self._socket.settimeout(1.0)
            self._send(CLOSE, struct.pack("!H", 1000))
        with suppress(OSError):
            self._socket.close()


def _frame(data: bytes) -> tuple[int, bool, int, int] | None:
    """The first frame in the bytes: its kind, whether the message ends with it, and where its content is."""
    if len(data) < 2:
        return None
    size, start = data[1] & 0x7F, 2
    if size == 126:
        if len(data) < 4:
            return None
        size, start = struct.unpack("!H", data[2:4])[0], 4
    elif size == 127:
        if len(data) < 10:
            return None
        size, start = struct.unpack("!Q", data[2:10])[0], 10
    if size > MAX_MESSAGE:
        raise Offline("The console sends more than a message may have.", "Its version may be another one.")
    if len(data) < start + size:
        return None
    return data[0] & 0x0F, bool(data[0] & 0x80), start, start + size


def _masked(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    whole = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(whole, "big")).to_bytes(size, "big")


def _document(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
