"""What came on a channel is read in its order, however it is cut, and needs no more memory than it has bytes."""

from __future__ import annotations

import random
import sys
import threading

import pytest
from paramiko.buffered_pipe import PipeTimeout

from agents.ssh.pieces import SHORT, PiecesPipe


@pytest.fixture
def pipe():
    return PiecesPipe()


def test_bytes_come_out_in_their_order_however_they_are_cut(pipe):
    dice = random.Random(7)
    sent, came = bytearray(), bytearray()
    for _ in range(2000):
        piece = dice.randbytes(dice.choice([1, 9, SHORT - 1, SHORT, 32_768]))
        pipe.feed(piece)
        sent += piece
        if dice.random() < 0.9:
            read = pipe.read(most := dice.choice([1, 100, SHORT, 512 * 1024]))
            assert 0 < len(read) <= most
            came += read
        assert len(pipe) == len(sent) - len(came)
        if not len(pipe):
            pipe.feed(b"x")
            sent += b"x"
    came += pipe.empty()
    assert came == sent and len(pipe) == 0 and not pipe.read_ready()


def test_bytes_that_come_one_by_one_need_little_more_than_their_own_memory(pipe):
    for _ in range(100_000):
        pipe.feed(b"x")
    pieces = pipe._buffer._pieces
    assert sum(map(sys.getsizeof, pieces)) < 110_000
    assert pipe.read(100_000) == b"x" * 100_000


def test_a_read_waits_for_bytes_and_for_the_end(pipe):
    with pytest.raises(PipeTimeout):
        pipe.read(10, 0.0)
    with pytest.raises(PipeTimeout):
        pipe.read(10, 0.01)
    feeder = threading.Timer(0.05, pipe.feed, [b"late"])
    feeder.start()
    assert pipe.read(10, 30) == b"late"
    pipe.feed(b"rest")
    pipe.close()
    assert pipe.read(10) == b"rest"
    assert pipe.read(10) == b""
