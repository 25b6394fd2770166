"""What an SSH connection runs over: a TCP socket that acknowledges at once, or a channel through a jump host."""

from __future__ import annotations

import os
import select
import socket
import threading
from contextlib import suppress
from typing import Any, cast

import paramiko

from agents.ssh.gcm_packets import TAG_BYTES
from agents.ssh.packets import READ_BYTES
from agents.ssh.peer_limits import checked_size

# The errors by which paramiko reports the end of a connection, whatever the cause.
CONNECTION_ERRORS = (OSError, EOFError, paramiko.SSHException)
# `Connection.without_waiting` sends less than this: a window with so much room takes it.
SMALL_MESSAGE = 4096


class Socket:
    """A TCP socket, or a channel of the connection to a jump host. Closing it never raises."""

    def __init__(self, inner: socket.socket | paramiko.Channel) -> None:
        self._inner = inner
        self._closed = False  # paramiko reads this attribute of its sockets

    def recv(self, size: int) -> bytes:
        return self._inner.recv(size)

    def send(self, data: bytes) -> int:
        return self._inner.send(data)

    def can_send_small_message(self) -> bool:
        """Whether SMALL_MESSAGE bytes can be sent without waiting."""
        return cast("paramiko.Channel", self._inner).out_window_size >= SMALL_MESSAGE

    def settimeout(self, timeout: float | None) -> None:
        self._inner.settimeout(timeout)

    def getpeername(self) -> Any:
        return self._inner.getpeername()

    def close(self) -> None:
        self._closed = True
        with suppress(*CONNECTION_ERRORS):
            # This wakes the thread that waits in recv; close() alone would leave it there until its timeout.
            self._inner.shutdown(socket.SHUT_RDWR)
        with suppress(*CONNECTION_ERRORS):
            self._inner.close()


class QuickAckSocket(Socket):
    """A TCP socket that acknowledges at once: otherwise Nagle's algorithm at sshd's end delays its answer for 40 ms.

    It reads ahead into a buffer, so that an event loop can see whether a whole packet has arrived.
    """

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
        self._setsockopt, self._fileno = inner.setsockopt, inner.fileno
        self._closing = threading.Lock()
        self._buffer, self._position, self._may_wait = b"", 0, True
        self._writable = select.poll()
        self._writable.register(inner, select.POLLOUT)

    def can_send_small_message(self) -> bool:
        return bool(self._writable.poll(0))

    def recv(self, size: int) -> bytes:
        """Read from the buffer. paramiko asks for a packet in two pieces; unbuffered, each costs three system calls."""
        if self._position == len(self._buffer):
            if not self._may_wait:
                raise EOFError("a packet that is longer than it claims")
            self._buffer, self._position = self._inner.recv(READ_BYTES), 0
            self.acknowledge()
        data = self._buffer[self._position : self._position + size]
        self._position += len(data)
        return data

    def close(self) -> None:
        with self._closing:
            super().close()

    def descriptor(self) -> int:
        """A duplicate descriptor, certainly of this socket; the caller closes it. OSError if the socket is closed."""
        with self._closing:
            return os.dup(self._fileno())

    def stop_waiting(self) -> None:
        """From now on an event loop reads: `recv` gives only what `feed` brought, whatever length a packet claims."""
        self._may_wait = False

    def has_unread(self) -> bool:
        """Whether something was read ahead that no packet has taken yet."""
        return self._position < len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Append data that the event loop has read from the descriptor. After it was handled: `acknowledge`."""
        self._buffer, self._position = self._buffer[self._position :] + data, 0

    def packet_size(self) -> int:
        """The size of the next packet if it has arrived whole, else 0. The cipher must leave lengths in the clear."""
        unread = len(self._buffer) - self._position
        if unread < 4:
            return 0
        inner = checked_size(int.from_bytes(self._buffer[self._position : self._position + 4], "big"))
        size = 4 + inner + TAG_BYTES
        return size if unread >= size else 0

    def acknowledge(self) -> None:
        """Acknowledge at once what was read. To the kernel this is a wish for one time."""
        with suppress(OSError):  # closed meanwhile, which the next `recv` tells
            self._setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
