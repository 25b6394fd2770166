"""Reads the sockets of a crowd, in a process of its own: the bench must not need the core that web needs.

It only counts: it skips over the content of frames, answers pings, and acknowledges output as the page does. Sockets
come as descriptors over the Unix socket whose number is the first argument. A message without one is the question in
which way sockets have ended, how many bytes have come, and how many pages were shown. This file imports nothing of
ours, so that it starts at once.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
# As the page does (static/shell.js).
ACK_STEP = 32 * 1024
# The product and its hosts go first.
NICE = 10
# A text that is shorter is a beat (console/live/beats.py), and no part of a page.
PART = 100


class Reader:
    """One socket: how many bytes its frames had, and where in a frame it is."""

    def __init__(self, descriptor):
        self.socket = socket.socket(fileno=descriptor)
        self.socket.setblocking(False)
        self.head, self.kind, self.left = bytearray(), 0, 0
        self.ping = b""
        # How the product ended it: the number of its close frame, or that there was none.
        self.end = b""
        self.taken = self.acked = self.parts = self.beats = 0

    def take(self, view):
        at = 0
        while at < len(view):
            if self.left:
                at += self.content(view[at : at + self.left])
            else:
                self.head.append(view[at])
                at += 1
                self.begin()
        if self.taken - self.acked >= ACK_STEP:
            self.acked = self.taken
            self.send(TEXT, json.dumps({"ack": self.taken}).encode())

    def begin(self):
        """Begin a frame when its head is whole."""
        head = self.head
        size = head[1] & 127 if len(head) > 1 else 0
        whole = 2 + {126: 2, 127: 8}.get(size, 0)
        if len(head) < whole:
            return
        self.kind, self.left = head[0] & 15, int.from_bytes(head[2:], "big") if whole > 2 else size
        self.head, self.ping = bytearray(), b""
        if self.kind == TEXT:
            self.parts += self.left >= PART
            self.beats += self.left < PART
        if not self.left and self.kind == PING:
            self.send(PONG, b"")

    def content(self, part):
        self.left -= len(part)
        if self.kind == BINARY:
            self.taken += len(part)
        elif self.kind == CLOSE:
            self.end += part
        elif self.kind == PING:
            self.ping += part
            if not self.left:
                self.send(PONG, self.ping)
        return len(part)

    def told_end(self):
        return str(int.from_bytes(self.end[:2], "big")) if self.end else "cut off"

    def send(self, kind, data):
        self.socket.send(bytes([0x80 | kind, 0x80 | len(data)]) + bytes(4) + data)  # a mask of zeros


def counts(readers, ends):
    return {
        "ends": ends,
        "bytes": sum(reader.taken for reader in readers),
        "shown": sum(reader.parts > 0 for reader in readers),
        "beaten": sum(reader.beats > 0 for reader in readers),
    }


def main():
    os.nice(NICE)
    control = socket.socket(fileno=int(sys.argv[1]))
    readers, ends = {}, []
    poll = select.epoll()
    poll.register(control, select.EPOLLIN)
    view = memoryview(bytearray(1 << 17))
    while True:
        for number, _ in poll.poll():
            if number == control.fileno():
                message, found, _, _ = socket.recv_fds(control, 64, 64)
                if not message:
                    return
                for descriptor in found:
                    readers[descriptor] = Reader(descriptor)
                    poll.register(descriptor, select.EPOLLIN)
                if not found:
                    control.sendall(json.dumps(counts(readers.values(), ends)).encode())
                continue
            reader = readers[number]
            try:
                count = reader.socket.recv_into(view)
                if not count:
                    raise ConnectionResetError
                reader.take(view[:count])
            except OSError:
                ends.append(reader.told_end())
                poll.unregister(number)


if __name__ == "__main__":
    main()
