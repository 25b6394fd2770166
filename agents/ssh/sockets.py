"""What a connection to a host runs over: a socket that acknowledges at once, or a channel through a jump host."""

from __future__ import annotations

import os
import select
import socket
import threading
from contextlib import suppress
from typing import Any, cast

import paramiko

from agents.ssh.packets import READ_BYTES

# However a connection ends, paramiko says it in one of these.
CONNECTION_ERRORS = (OSError, EOFError, paramiko.SSHException)
# sshd's are half as large at most as what it was told (RFC 4253, 6.1). Behind each of AES-GCM is a tag.
MAX_PACKET = 256 * 1024
TAG_BYTES = 16
# A window that has this much room takes what `Connection.at_once` sends.
SMALL_MESSAGE = 4096


class Socket:
    """What a connection runs over: a TCP socket, or a channel of the one to a jump host. Closing it never raises."""

    def __init__(self, inner: socket.socket | paramiko.Channel) -> None:
        self._inner = inner
        self._closed = False  # paramiko looks at this one of its sockets

    def recv(self, size: int) -> bytes:
        return self._inner.recv(size)

    def send(self, data: bytes) -> int:
        return self._inner.send(data)

    def takes_a_little(self) -> bool:
        """Whether a small message can be sent without waiting."""
        return cast("paramiko.Channel", self._inner).out_window_size >= SMALL_MESSAGE

    def settimeout(self, timeout: float | None) -> None:
        self._inner.settimeout(timeout)

    def getpeername(self) -> Any:
        return self._inner.getpeername()

    def close(self) -> None:
        self._closed = True
        with suppress(*CONNECTION_ERRORS):
            # Wakes the thread that sits in recv; close() alone would leave it there until its timeout.
            self._inner.shutdown(socket.SHUT_RDWR)
        with suppress(*CONNECTION_ERRORS):
            self._inner.close()


class QuickAckSocket(Socket):
    """A TCP socket that acknowledges at once: sshd's own Nagle would else hold back its answer for 40 ms."""

    def __init__(self, inner: socket.socket, dead_s: float) -> None:
        super().__init__(inner)
        for level, option, value in (
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(dead_s / 3))),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, int(dead_s / 3))),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(dead_s * 1000)),
        ):
            inner.setsockopt(level, option, value)
        self._quick, self._fileno = inner.setsockopt, inner.fileno
        self._closing = threading.Lock()
        self._ahead, self._at, self._waits = b"", 0, True
        self._room = select.poll()
        self._room.register(inner, select.POLLOUT)

    def takes_a_little(self) -> bool:
        return bool(self._room.poll(0))

    def recv(self, size: int) -> bytes:
        """paramiko asks for a packet in two pieces; each would be three calls of the system."""
        if self._at == len(self._ahead):
            if not self._waits:
                raise EOFError("a packet that is longer than it claims")
            self._came(b"", self._inner.recv(READ_BYTES))
        data = self._ahead[self._at : self._at + size]
        self._at += len(data)
        return data

    def close(self) -> None:
        with self._closing:
            super().close()

    def descriptor(self) -> int:
        """One of the caller's own, of this socket for sure. OSError when it is closed."""
        with self._closing:
            return os.dup(self._fileno())

    def never_wait(self) -> None:
        """From now on an event loop reads: what `came` did not bring is not there, whatever a packet claims."""
        self._waits = False

    def came(self, data: bytes) -> None:
        """Somebody else has read what comes next."""
        self._came(self._ahead[self._at :], data)

    def has_packet(self) -> bool:
        """Whether a packet has come whole, of a cipher that tells its length in the clear."""
        come = len(self._ahead) - self._at
        if come < 4:
            return False
        size = int.from_bytes(self._ahead[self._at : self._at + 4], "big")
        if size > MAX_PACKET:
            raise paramiko.SSHException(f"a packet of {size} bytes")
        return come >= 4 + size + TAG_BYTES

    def _came(self, before: bytes, data: bytes) -> None:
        self._ahead, self._at = before + data, 0
        self._quick(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
