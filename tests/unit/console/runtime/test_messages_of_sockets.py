"""The messages of clients arrive whole, in order and once, wherever their bytes are cut on the way."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode

from console.runtime import websocket_protocol

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Wire(asyncio.Transport):
    def write(self, data):
        pass

    def is_closing(self):
        return False

    def pause_reading(self):
        pass

    resume_reading = close = pause_reading


async def application(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        scope["came"].append(message.get("bytes") or message["text"].encode())


def config_of(application):
    config = uvicorn.Config(application, lifespan="off", ws_ping_interval=None, log_config=None)
    config.ws_per_message_deflate = False
    config.load()
    config.loaded_app = application
    return config


def received(pieces, takes=lambda data: True):
    """What came of a client that sends these pieces one after the other."""
    came = []

    async def run():
        protocol = websocket_protocol.Protocol(config_of(application), ServerState(), {})
        protocol.connection_made(Wire())
        protocol.data_received(HANDSHAKE)
        protocol.scope["came"] = came
        while not protocol.handshake_complete:
            await asyncio.sleep(0)

        def take(data):
            if not takes(data):
                return False
            came.append(data)
            return True

        protocol.hand_to(take)
        for piece in pieces:
            protocol.data_received(piece)
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        for task in protocol.tasks:
            task.cancel()

    asyncio.run(run())
    return came


def frame(opcode, data, fin=True):
    return Frame(opcode, data, fin).serialize(mask=True)


def cut(data, places):
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[begin:end] for begin, end in zip(edges, edges[1:], strict=False)]


def test_messages_of_each_size_and_kind_arrive():
    keys = [b"a", b"\x1b[A", b"\r", b"x" * 125]
    assert received([frame(Opcode.BINARY, key) for key in keys]) == keys
    assert received([frame(Opcode.BINARY, b"x" * 126)]) == [b"x" * 126]
    assert received([frame(Opcode.TEXT, b"{}")]) == [b"{}"]


def test_a_message_that_nobody_takes_at_once_reaches_the_application():
    assert received([frame(Opcode.BINARY, b"a")], lambda data: False) == [b"a"]


def test_what_looks_like_a_message_within_a_message_is_none():
    key, mask = frame(Opcode.BINARY, b"k"), bytes(4)
    message = bytes((0x82, 0x80 | len(key) + 4)) + mask + b"ab" + key + b"cd"
    begin = message.index(key)
    pieces = [message[:begin], key, message[begin + len(key) :]]
    assert received([*pieces, key]) == [b"ab" + key + b"cd", b"k"]
    # Between the frames of one message comes no other one.
    assert received([frame(Opcode.BINARY, b"first", fin=False), key]) == []


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=200), st.integers(0, 2)), min_size=1, max_size=12),
    st.lists(st.integers(0, 3000), max_size=12),
)
def test_messages_arrive_whole_in_order_and_once(messages, places):
    """Short and long ones, in one frame or several, cut anywhere; a frame may look like a key within another one."""
    inner = frame(Opcode.BINARY, b"k")
    sent, expected = b"", []
    for data, shape in messages:
        if shape == 2:
            sent += frame(Opcode.BINARY, data, fin=False) + frame(Opcode.CONT, inner)
            expected.append(data + inner)
        else:
            whole = data + inner * shape
            sent += frame(Opcode.BINARY, whole)
            expected.append(whole)
    assert received(cut(sent, places)) == expected


class FullWire(Wire):
    """A transport over a socket, with what `held` would still have to write."""

    def __init__(self, ours, held):
        super().__init__()
        self.ours, self.held = ours, held

    def get_extra_info(self, name, default=None):
        return self.ours if name == "socket" else default

    def get_write_buffer_size(self):
        return len(self.held)

    def write(self, data):
        self.held += data


@pytest.mark.parametrize("room", [0, 2, 100])
@pytest.mark.parametrize("waiting", [b"", b"before"])
def test_a_frame_that_is_written_at_once_overtakes_nothing_and_is_whole(monkeypatch, room, waiting):
    """It goes behind all that waits, and what the socket does not take goes the way of everything else."""
    ours, theirs = socket.socketpair()
    honest = os.write

    def write(fd, data):
        if not room:
            raise BlockingIOError
        return honest(fd, data[:room])

    async def run():
        protocol = websocket_protocol.Protocol(config_of(application), ServerState(), {})
        protocol.connection_made(FullWire(ours, bytearray()))
        protocol.data_received(HANDSHAKE)
        protocol.scope["came"] = []
        while not protocol.handshake_complete:
            await asyncio.sleep(0)
        del protocol.transport.held[:]
        protocol.transport.held += waiting
        monkeypatch.setattr(websocket_protocol.os, "write", write)
        assert protocol.write_now(websocket_protocol.binary_frame(b"echo"))
        monkeypatch.undo()
        protocol.close_sent = True
        assert not protocol.write_now(b"too late")
        for task in protocol.tasks:
            task.cancel()
        return bytes(protocol.transport.held)

    held = asyncio.run(run())
    ours.close()
    went = theirs.recv(100)
    theirs.close()
    frame = websocket_protocol.binary_frame(b"echo")
    assert (went, held) == ((b"", waiting + frame) if waiting else (frame[:room], frame[room:]))
