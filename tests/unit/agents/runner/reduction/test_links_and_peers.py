"""The connection between a trainer and a reducer, as either end has it."""

from __future__ import annotations

import select
import socket

import pytest

from agents.runner.reduction.peer import Peer
from agents.runner.reduction.wire import CHUNK_OF, GOODBYE, Trainer, frame

US = Trainer(0, 1, b"s" * 16)


@pytest.fixture
def pair():
    """Two ends of a connection by TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
    with here, there:
        yield here, there


def test_what_is_left_after_many_reads_wakes_a_reducer_again(pair):
    here, there = pair
    heard = []
    peer = Peer(there, US, lambda _peer, kind, *_: heard.append(kind))
    here.sendall(frame(CHUNK_OF, 8192))
    while not select.select([there], [], [], 0.1)[0]:
        pass
    peer.read()
    here.sendall(bytes(8192) + frame(GOODBYE, 0) * 40)
    while len(heard) < 41 and select.select([there], [], [], 5)[0]:
        peer.read()
    assert heard == [CHUNK_OF] + [GOODBYE] * 40
