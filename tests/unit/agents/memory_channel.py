"""A fake channel of an SSH connection: a queue keeps what is sent."""

from __future__ import annotations

import queue
import threading


class MemoryChannel:
    def __init__(self):
        self.sent, self.closed = queue.Queue(), threading.Event()
        self.heard = iter(())

    def recv(self, size):
        return next(self.heard, b"")

    def recv_stderr_ready(self):
        return False

    def sendall(self, data):
        self.sent.put(data)

    def close(self):
        self.closed.set()
