"""The connection between a trainer and a reducer, as either end has it."""

from __future__ import annotations

import errno
import queue
import select
import socket
import struct
import threading
import time

import pytest

from agents.runner.reduction import link as links
from agents.runner.reduction import peer as peers
from agents.runner.reduction import reducer as reducers
from agents.runner.reduction.link import Link
from agents.runner.reduction.peer import Peer
from agents.runner.reduction.sums import mean
from agents.runner.reduction.way import Job
from agents.runner.reduction.wire import (
    ABOUT,
    BEAT,
    CHUNK_OF,
    FLOAT32,
    FRAME,
    GOODBYE,
    Trainer,
    frame,
    read,
    receive,
    slices,
)

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


def test_frames_arrive_whole_however_they_are_cut_and_however_large_they_are(pair):
    here, there = pair
    heard = []
    peer = Peer(there, US, lambda _peer, kind, _flags, stream, payload: heard.append((kind, stream, payload)))
    sizes = [1, peers.MAX_CHUNK, 3, peers.BUFFER - FRAME.size, peers.BUFFER, 16384, peers.MAX_CHUNK, 5]
    sent = [(CHUNK_OF, number, bytes([number]) * size) for number, size in enumerate(sizes)]
    data = b"".join(frame(kind, len(payload), stream) + payload for kind, stream, payload in sent)
    cuts = [0, 3, 9, 12, 70_000, 70_001, 1_100_000, 1_200_007, len(data)]
    pieces = [data[begin:end] for begin, end in zip(cuts, cuts[1:], strict=False)]
    thread = threading.Thread(target=lambda: [here.sendall(piece) for piece in pieces])
    thread.start()
    while len(heard) < len(sent) and select.select([there], [], [], 10)[0]:
        peer.read()
    thread.join(60)
    assert heard == sent


class Linked:
    """A link, and what it is connected with: sockets in the place of reducers."""

    def __init__(self, reducers):
        self.listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(reducers)]
        self.reducers, self.lost, self.ends = [], [], queue.Queue()
        thread = threading.Thread(target=self._accept)
        thread.start()
        addresses = [listener.getsockname()[:2] for listener in self.listeners]
        self.link = Link(addresses, US, b"secret", self.lost.append)
        thread.join(60)

    def _accept(self):
        for listener in self.listeners:
            connection, _ = listener.accept()
            receive(connection, b"secret", time.monotonic() + 60)
            self.reducers.append(connection)

    def give(self, name, numbers, number=0, done=None):
        data = memoryview(bytearray(4 * numbers))
        views = [data[begin:end] for begin, end in slices(numbers, 4, len(self.reducers))]
        self.link.give(
            Job(0, number, FLOAT32, views, done or (lambda error: self.ends.put((name, error, bytes(data)))))
        )

    def hear(self, reducer, size):
        """One bucket with so many bytes for this reducer."""
        chunk = FRAME.size + size if size else 0
        read(self.reducers[reducer], FRAME.size + ABOUT.size + chunk, time.monotonic() + 60)

    def answer(self, reducer, data):
        self.reducers[reducer].sendall(frame(CHUNK_OF, len(data)) + data)

    def close(self):
        self.link.leave()
        for each in (*self.reducers, *self.listeners):
            each.close()


@pytest.fixture
def linked():
    made = []

    def make(reducers):
        made.append(Linked(reducers))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_bucket_with_fewer_numbers_than_reducers_does_not_end_the_one_before(linked):
    group = linked(2)
    group.give("first", 2)
    group.give("small", 1, number=1)
    for reducer, sizes in ((0, (4, 0)), (1, (4, 4))):
        for size in sizes:
            group.hear(reducer, size)
    group.answer(1, b"abcd")
    group.answer(1, b"ijkl")
    assert group.ends.get(timeout=60) == ("small", None, b"ijkl")
    group.answer(0, b"efgh")
    assert group.ends.get(timeout=60) == ("first", None, b"efghabcd")
    assert group.lost == []


def test_a_bucket_of_nothing_is_done_when_it_is_sent(linked):
    group = linked(2)
    group.give("nothing", 0)
    assert group.ends.get(timeout=60) == ("nothing", None, b"")


def test_a_long_pause_of_the_program_is_no_silence_of_a_reducer(linked):
    group = linked(1)
    way = group.link.ways[0]
    way.heard, way.answered = way.heard - 3600, way.answered - 3600
    group.give("small", 1)
    group.hear(0, 4)
    group.answer(0, b"abcd")
    assert group.ends.get(timeout=60) == ("small", None, b"abcd")
    assert group.lost == []


def test_a_mean_that_cannot_be_taken_is_an_error_and_ends_no_other(linked):
    group = linked(1)

    def done(error):
        group.ends.put(error)
        if error is None:
            raise MemoryError("no memory")

    group.give("cannot be taken", 1, done=done)
    group.give("next", 1, number=1)
    for data in (b"abcd", b"efgh"):
        group.hear(0, 4)
        group.answer(0, data)
    assert group.ends.get(timeout=60) is None
    assert "no memory" in str(group.ends.get(timeout=60))
    assert group.ends.get(timeout=60) == ("next", None, b"efgh")


def test_a_bucket_after_the_end_is_an_error(linked):
    group = linked(1)
    group.give("on its way", 1)
    group.hear(0, 4)
    group.link.leave()
    group.give("late", 1)
    for name in ("on its way", "late"):
        found, error, _ = group.ends.get(timeout=60)
        assert (found, str(error)) == (name, "the reduction is over")


def test_a_reducer_that_falls_silent_is_lost_and_one_that_is_heard_is_not(linked, monkeypatch):
    monkeypatch.setattr(links, "SILENT_S", 3.0)
    group = linked(1)
    group.give("waits", 1)
    group.hear(0, 4)
    for _ in range(8):
        time.sleep(0.5)
        group.reducers[0].sendall(frame(BEAT, 0))
    assert group.lost == []
    assert group.link.ways[0].received == 0
    _, error, _ = group.ends.get(timeout=60)
    assert "is lost: it does not answer" in str(error)
    assert group.lost == [str(error)]


def test_a_lost_reducer_is_found_before_an_error_that_comes_of_it_goes_to_the_program(linked):
    """A neighbour that has lost it is gone, and this process waits for nothing of the reducer at the moment."""
    group = linked(2)
    way = group.link.ways[1]
    way.answered -= 24 * 3600
    group.reducers[1].close()
    group.link.settle()
    assert group.lost == [f"the reducer {way.name} is lost: it closed the connection"]


def test_an_error_that_comes_of_no_reducer_goes_to_the_program(linked, monkeypatch):
    monkeypatch.setattr(links, "SETTLE_S", 0.2)
    monkeypatch.setattr(links, "GOODBYE_S", 0.2)
    group = linked(1)
    way = group.link.ways[0]
    way.answered -= 24 * 3600  # nothing was sent for long
    group.link.settle()
    group.give("small", 1)
    group.hear(0, 4)
    group.answer(0, b"abcd")
    assert group.ends.get(timeout=60) == ("small", None, b"abcd") and group.lost == []


@pytest.fixture
def reducer():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        made = reducers.Reducer(listener, b"secret", mean)
        made.address = listener.getsockname()
        yield made


@pytest.fixture
def served(reducer):
    """The address of a reducer in a thread of ours."""
    thread = threading.Thread(target=reducer.serve, daemon=True)
    thread.start()
    yield reducer.address
    reducer.leave()
    thread.join(60)


def test_a_trainer_that_pauses_is_waited_for_however_much_the_others_have_sent(served, monkeypatch):
    monkeypatch.setattr(links, "SILENT_S", 3.0)
    monkeypatch.setattr(peers, "BEAT_S", 0.5)
    lost, ends, size = [], queue.Queue(), 16 << 20
    trainers = [Link([served], Trainer(number, 2, b"s" * 16), b"secret", lost.append) for number in (0, 1)]
    for trainer in trainers:
        trainer.give(Job(0, 0, FLOAT32, [memoryview(bytearray(size))], ends.put))
        if trainer is trainers[0]:
            time.sleep(5)  # it checkpoints, for longer than a reducer may be silent
    assert [ends.get(timeout=60), ends.get(timeout=60), lost] == [None, None, []]
    for trainer in trainers:
        trainer.leave()


def test_a_refused_trainer_that_is_gone_already_does_not_end_the_reducer(reducer, pair):
    here, there = pair
    here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    here.close()
    reducer._join(there, Trainer(0, 1, b"s" * 16))
    again = there.dup()
    reducer._join(again, Trainer(0, 1, b"s" * 16))
    reducer.leave()
    reducer.serve()
    assert again.fileno() == -1


def test_a_reducer_listens_where_the_kernel_has_no_IPv6(monkeypatch):
    made = socket.socket

    def without(family=socket.AF_INET, *more, **options):
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return made(family, *more, **options)

    monkeypatch.setattr(socket, "socket", without)
    with reducers.listen(0) as listener:
        assert listener.family == socket.AF_INET
