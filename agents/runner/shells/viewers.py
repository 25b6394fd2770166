"""One connection of a console to a shell: how far its output has got, and what its client has typed."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any, Dict, List

from agents.runner.shells.frames import HEAD, LOST, OUT, Frames, frame
from agents.runner.shells.ring import Ring

READ_BYTES = 64 * 1024
PIECE_BYTES = 32 * 1024
# A viewer for whom so much else waits does not read: its connection is closed.
MAX_UNSENT = 1 << 20


class Viewer:
    """`at` is the offset of the next output to send. `control` keeps the attached process on the host alive."""

    def __init__(self, control: socket.socket, fds: List[int], request: Dict[str, Any]) -> None:
        self.control, (self.fd_in, self.fd_out) = control, fds
        self.client = str(request.get("client") or "")[:64]
        viewer = request.get("viewer")
        self.name = str(viewer.get("name") or "")[:150] if isinstance(viewer, dict) else ""
        self.types = not (isinstance(viewer, dict) and viewer.get("types") is False)
        self.at = 0
        self.unsent = b""
        self.open = True
        self.end: bytes = b""
        self.took_unsent = False
        self.heard_at = self.moved_at = self.beaten_at = time.monotonic()
        self.frames = Frames()
        for fd in fds:
            os.set_blocking(fd, False)

    def read(self) -> bytes:
        """What has arrived: whole frames, or parts. Raises OSError when the connection is over."""
        try:
            data = os.read(self.fd_in, READ_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            raise OSError("the connection has ended")
        self.heard_at = time.monotonic()
        return data

    def show(self, data: bytes) -> None:
        """Send new output at once, if all before it is sent. It is not in the ring yet: an echo waits for nothing."""
        if not self.unsent:
            self._send(HEAD.pack(OUT, len(data), self.at) + data)
            self.at += len(data)

    def catch_up(self, ring: Ring) -> None:
        """Send what is due, as far as the connection takes it."""
        if self.unsent:
            rest, self.unsent = self.unsent, b""
            self._send(rest)
        while not self.unsent and self.open and self.at < ring.end:
            if self.at < ring.start:
                self.at = ring.start
                self._send(frame(LOST, self.at, ring.modes.as_sequences()))
                continue
            piece = ring.read(self.at, PIECE_BYTES)
            self._send(frame(OUT, self.at, piece))
            self.at += len(piece)
        if self.end and not self.unsent:
            last, self.end = self.end, b""
            self._send(last)

    def tell(self, data: bytes) -> None:
        """Send a frame that is not output."""
        if self.unsent:
            self.unsent += data
            self.open = self.open and len(self.unsent) <= MAX_UNSENT
        else:
            self._send(data)

    def _send(self, data: bytes) -> None:
        try:
            written = os.write(self.fd_out, data)
        except BlockingIOError:
            written = 0
        except OSError:
            self.open = False
            return
        if written:
            self.moved_at = time.monotonic()
        if written < len(data):
            self.unsent = data[written:]

    def is_behind(self, ring: Ring, allowed: int = 0) -> bool:
        return ring.end - self.at > allowed or bool(self.unsent)

    def close(self) -> None:
        self.open = False
        for fd in (self.fd_in, self.fd_out):
            with contextlib.suppress(OSError):
                os.close(fd)
        self.control.close()
