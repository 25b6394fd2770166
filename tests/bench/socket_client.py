"""A WebSocket client in one thread, for what is measured in fractions of a millisecond.

The library's own client hands each message from a receiving thread to the caller, which costs 0.17 ms. Making and
reading its frames in Python after an idle moment costs some 0.05 ms more, which no browser needs.
"""

from __future__ import annotations

import select
import socket
import struct
import urllib.parse

from websockets.client import ClientProtocol
from websockets.http11 import Response
from websockets.uri import parse_uri

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
# A mask of zeros: the reason for masks (RFC 6455, 10.3) does not apply between a test and its server.
MASK = bytes(4)


class SocketClient:
    def __init__(self, client, path, timeout=30):
        address = urllib.parse.urlsplit(client.url)
        self.socket = socket.create_connection((address.hostname, address.port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.came = bytearray()
        self.enter(f"ws://{address.netloc}{path}", client.token)

    def enter(self, uri, token):
        protocol = ClientProtocol(parse_uri(uri))
        request = protocol.connect()
        request.headers["Authorization"] = f"Bearer {token}"
        protocol.send_request(request)
        self.socket.sendall(b"".join(protocol.data_to_send()))
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += self.socket.recv(1)  # bytes after the answer are a frame
        protocol.receive_data(answer)
        events = protocol.events_received()
        assert isinstance(events[0], Response) and events[0].status_code == 101, events

    def send(self, message):
        if isinstance(message, str):
            self.frame(TEXT, message.encode())
        else:
            self.frame(BINARY, message)

    def frame(self, opcode, data):
        size = len(data)
        assert size < 1 << 16
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | min(size, 126))
        self.socket.sendall(head + (struct.pack("!H", size) if size > 125 else b"") + MASK + data)

    def recv(self, timeout=None):
        """Return the next whole message: our server sends no fragments."""
        while True:
            opcode, data = self.next(timeout)
            if opcode == BINARY:
                return data
            if opcode == TEXT:
                return data.decode()
            if opcode == PING:
                self.frame(PONG, data)
            if opcode == CLOSE:
                raise EOFError(f"the product closed the socket: {data!r}")

    def next(self, timeout):
        while (found := first_frame(self.came)) is None:
            if timeout is not None and not select.select([self.socket], [], [], timeout)[0]:
                raise TimeoutError
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError("the product closed the socket")
            self.came += data
        opcode, begin, end = found
        data = bytes(self.came[begin:end])
        del self.came[:end]
        return opcode, data

    def close(self):
        self.socket.close()


def first_frame(came):
    """Return (opcode, begin of its data, its end), or None while the frame is not whole."""
    if len(came) < 2:
        return None
    size, begin = came[1], 2
    if size > 125:
        begin = 4 if size == 126 else 10
        if len(came) < begin:
            return None
        size = int.from_bytes(came[2:begin], "big")
    return (came[0] & 15, begin, begin + size) if len(came) >= begin + size else None
