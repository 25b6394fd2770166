"""Large bodies on their way from the socket into a sink: as few copies as can be, and none that a client can abuse."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from console.large_bodies import PIECE
from console.runtime.client_limits.http_protocol import Protocol
from console.runtime.requests import large_requests


@pytest.fixture(autouse=True)
def no_database(monkeypatch):
    """Threads of their own: those of the module may have a connection of another test, and no database is allowed."""
    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(large_requests, "_threads", threads)
        yield


class Sink:
    project = 0

    def __init__(self):
        self.writes = []

    def write(self, data):
        self.writes.append(data)


def pumped(*bodies):
    """What a sink gets of these messages."""
    left = list(bodies)

    async def receive():
        body = left.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(left)}

    sink = Sink()
    received = asyncio.run(large_requests._pump(sink, receive))
    assert received.complete, received.problem
    return sink.writes


def test_parts_are_handed_on_as_they_came():
    parts = [os.urandom(256 * 1024) for _ in range(9)]
    writes = pumped(*parts)
    assert len(writes) == 9 and all(one is other for one, other in zip(writes, parts, strict=True))


def test_a_body_that_comes_byte_by_byte_is_put_together():
    """A million objects of one byte each would take fifty times the memory of a piece."""
    body = os.urandom(5000)
    large = os.urandom(PIECE)
    writes = pumped(*(body[at : at + 1] for at in range(len(body))), large, b"end")
    assert writes == [body, large, b"end"] and all(type(each) is bytes for each in writes)


def test_what_a_socket_gave_is_not_copied_into_a_buffer_unless_it_is_many_pieces():
    protocol = Protocol.__new__(Protocol)
    protocol.parser = SimpleNamespace(should_upgrade=lambda: False)
    protocol.flow = SimpleNamespace(pause_reading=lambda: None)
    protocol.cycle = SimpleNamespace(body=bytearray(), response_complete=False, message_event=asyncio.Event())
    protocol._is_large, protocol._most_bytes, protocol._body_size = True, 1 << 30, 0
    protocol._next_look, protocol._refused = 1 << 30, 0
    first = os.urandom(1 << 18)
    protocol.on_body(first)
    assert protocol.cycle.body is first and protocol.cycle.message_event.is_set()
    for _ in range(3):  # chunks of a chunked body: each addition to `bytes` would copy all that came before
        protocol.on_body(b"x")
    assert protocol.cycle.body == first + b"xxx" and isinstance(protocol.cycle.body, bytearray)
