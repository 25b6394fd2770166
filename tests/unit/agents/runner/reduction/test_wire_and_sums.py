"""The proof of a secret, the sums of a reducer, and the last words of a session."""

from __future__ import annotations

import random
import socket
import threading
import time

import numpy
import pytest

from agents.runner.reduction import session as sessions
from agents.runner.reduction.sums import decode, encode, mean
from agents.runner.reduction.wire import (
    ABOUT,
    BFLOAT16,
    BUCKET,
    BY_SENDERS,
    CHUNK_OF,
    DISAGREE,
    EMPTY,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FRAME,
    GONE,
    LATE,
    Trainer,
    Unfit,
    greet,
    receive,
    slices,
)

US = Trainer(1, 4, b"s" * 16)


def greeting(secret_of_trainer, secret_of_reducer, trainer=US):
    """What both ends got: a Trainer or the problem; None or the problem."""
    here, there = socket.socketpair()
    found = {}

    def reducer():
        try:
            found["reducer"] = receive(there, secret_of_reducer, time.monotonic() + 60)
        except (OSError, Unfit) as problem:
            found["reducer"] = problem
            there.close()

    thread = threading.Thread(target=reducer)
    thread.start()
    try:
        found["trainer"] = greet(here, trainer, secret_of_trainer, time.monotonic() + 60)
    except (OSError, Unfit) as problem:
        found["trainer"] = problem
    here.close()
    thread.join(60)
    there.close()
    return found["trainer"], found["reducer"]


def test_both_ends_prove_that_they_know_the_secret():
    assert greeting(b"one", b"one") == (None, US)
    trainer, reducer = greeting(b"one", b"other")
    assert "does not know the secret" in str(trainer)
    assert "does not know the secret" in str(reducer)


def test_a_trainer_that_cannot_be_is_turned_away():
    _, reducer = greeting(b"one", b"one", Trainer(4, 4, b"s" * 16))
    assert "trainer 4 of 4" in str(reducer)


def test_slices_cover_all_numbers_once():
    for numbers in (1, 3, 64, 1001):
        for reducers in (1, 2, 3, 7):
            parts = slices(numbers, 4, reducers)
            assert parts[0][0] == 0
            assert parts[-1][1] == numbers * 4
            assert all(end == begin for (_, end), (begin, _) in zip(parts, parts[1:], strict=False))


def test_bfloat16_rounds_to_even_and_keeps_what_is_no_number():
    numbers = numpy.array([1.0, -2.5, 3.14159265, 1e30, numpy.inf, -numpy.inf], numpy.float32)
    back = decode(encode(numbers, BFLOAT16).tobytes(), BFLOAT16)
    assert numpy.allclose(back[:4], numbers[:4], rtol=2**-8)
    assert list(back[4:]) == [numpy.inf, -numpy.inf]
    strange = numpy.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], numpy.uint32).view(numpy.float32)
    assert numpy.isnan(decode(encode(strange, BFLOAT16).tobytes(), BFLOAT16)).all()


def test_bfloat16_rounds_to_the_nearest_and_ties_to_even():
    numbers = [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-16, 1 + 2**-8 - 2**-16, -1 - 3 * 2**-8]
    back = decode(encode(numpy.array(numbers, numpy.float32), BFLOAT16).tobytes(), BFLOAT16)
    assert list(back) == [1, 1 + 2**-6, 1 + 2**-7, 1, -1 - 2**-6]


@pytest.mark.parametrize(("kind", "large"), [(FLOAT16, 2048.0), (BFLOAT16, 256.0)])
def test_a_sum_of_16_bits_is_rounded_once(kind, large):
    """One more is too little to be seen beside `large`, and eight more are not."""
    numbers = [large, *[1.0] * 8]
    chunks = [encode(numpy.full(4, each, numpy.float32), kind).tobytes() for each in numbers]
    assert list(decode(mean(chunks, kind, 1), kind)) == [large + 8] * 4


@pytest.mark.parametrize("kind", [FLOAT32, FLOAT64, FLOAT16, BFLOAT16])
def test_the_mean_of_16_bits_is_made_in_32(kind):
    chunks = [
        encode(numpy.full(8, 60000.0, numpy.float64 if kind == FLOAT64 else numpy.float32), kind).tobytes()
    ] * 4
    assert numpy.allclose(decode(mean(chunks, kind, 4), kind), 60000.0, rtol=2**-7)


class Ear:
    """A trainer's connection, as a session has it."""

    def __init__(self, index, count):
        self.trainer, self.index = Trainer(index, count, b"s" * 16), index
        self.sent, self.failed = b"", None
        self.buffered = self.waiting_bytes = 0
        self.said_goodbye = False

    def send(self, data):
        self.sent += data

    def fail(self, code, sentence, until):
        self.failed = (code, sentence)

    @property
    def numbers(self):
        found, rest = b"", self.sent
        while rest:
            _, _, _, size = FRAME.unpack(rest[: FRAME.size])
            found += rest[FRAME.size : FRAME.size + size]
            rest = rest[FRAME.size + size :]
        return numpy.frombuffer(found, numpy.float32)


class Group:
    def __init__(self, count, **options):
        self.now = 0.0
        self.session = sessions.Session(count, mean, lambda: self.now, **options)
        self.ears = [Ear(index, count) for index in range(count)]
        for ear in self.ears:
            assert self.session.add(ear) == ""

    def frames(self, index, numbers, number=0, stream=0, flags=0, cut=16):
        data = numpy.asarray(numpy.float32(numbers)).tobytes()
        yield index, BUCKET, flags, stream, ABOUT.pack(number, len(data), FLOAT32)
        for begin in range(0, len(data), cut):
            yield index, CHUNK_OF, 0, stream, bytearray(data[begin : begin + cut])

    def say(self, frame):
        index, kind, flags, stream, payload = frame
        self.session.on_frame(self.ears[index], kind, flags, stream, payload)
        self.session.work()


def test_sums_have_the_same_bits_in_whatever_order_trainers_are_heard():
    dice = random.Random(7)
    values = [
        numpy.random.Generator(numpy.random.PCG64(seed)).normal(size=64) * 10.0**seed for seed in range(4)
    ]
    seen = set()
    for _ in range(20):
        group = Group(4)
        queues = [list(group.frames(index, values[index])) for index in range(4)]
        while any(queues):
            queue = dice.choice([each for each in queues if each])
            group.say(queue.pop(0))
        seen |= {ear.numbers.tobytes() for ear in group.ears}
    assert len(seen) == 1
    assert numpy.allclose(numpy.frombuffer(seen.pop(), numpy.float32), sum(values) / 4, rtol=1e-5)


def test_each_sum_begins_with_the_first_trainer():
    """In another order, the ones would be lost beside the large number, or not."""
    group = Group(3)
    for number in range(3):
        for index, value in enumerate([2.0**24, 1.0, 1.0]):
            for frame in group.frames(index, [value] * 4, number=number):
                group.say(frame)
    assert set(group.ears[0].numbers) == {numpy.float32(2.0**24) / numpy.float32(3)}


def test_models_of_one_process_may_be_heard_in_another_order():
    group = Group(2)
    for stream in (0, 1):
        for frame in group.frames(0, [1.0 + stream] * 8, stream=stream):
            group.say(frame)
    for stream in (1, 0):
        for frame in group.frames(1, [3.0 + stream] * 8, stream=stream):
            group.say(frame)
    assert sorted(group.ears[0].numbers) == [2.0] * 8 + [3.0] * 8


def test_those_without_inputs_are_counted_only_where_all_are():
    for flags, expected in ((0, 1.0), (BY_SENDERS, 2.0)):
        group = Group(4)
        for index, value in enumerate([2.0, 2.0, 0.0, 0.0]):
            for frame in group.frames(index, [value] * 4, flags=flags | (0 if value else EMPTY)):
                group.say(frame)
        assert list(group.ears[0].numbers) == [expected] * 4


def test_trainers_that_disagree_are_told_who_and_what():
    group = Group(2)
    for index, size in enumerate((8, 12)):
        for frame in group.frames(index, [1.0] * size):
            group.say(frame)
    code, sentence = group.ears[1].failed
    assert code == DISAGREE
    assert (
        "trainer 0 sent bucket 0 (32 bytes of float32 here) and trainer 1 sent bucket 0 (48 bytes" in sentence
    )


def test_a_trainer_that_left_matters_only_to_those_that_need_it():
    group = Group(2)
    for index in range(2):
        for frame in group.frames(index, [1.0] * 4):
            group.say(frame)
    group.session.leave(group.ears[1], "is lost: it fell silent")
    assert group.ears[0].failed is None
    group.say(next(group.frames(0, [1.0] * 4, number=1)))
    assert group.ears[0].failed == (GONE, "trainer 1 is lost: it fell silent, and the others wait for it")


def test_a_trainer_that_sends_nothing_for_half_an_hour_is_named():
    group = Group(3)
    for index in (0, 2):
        for frame in group.frames(index, [1.0] * 4):
            group.say(frame)
    group.now = sessions.PATIENCE_S - 1
    group.session.look_at_clock()
    assert group.ears[0].failed is None
    group.now = sessions.PATIENCE_S + 1
    group.session.look_at_clock()
    assert group.ears[0].failed[0] == LATE
    assert "trainer 1 has sent nothing" in group.ears[0].failed[1]


def test_the_timeout_of_the_programs_own_group_holds():
    patient = Trainer(1, 4, b"s" * 16, 77)
    assert greeting(b"one", b"one", patient) == (None, patient)
    group = Group(2, patience_s=77)
    group.say(next(group.frames(0, [1.0] * 4)))
    for group.now, late in ((76.0, False), (78.0, True)):
        group.session.look_at_clock()
        assert bool(group.ears[0].failed) is late
    assert "trainer 1 has sent nothing for 77 seconds" in group.ears[0].failed[1]


def test_a_trainer_far_ahead_waits_unless_the_others_wait_for_it():
    group = Group(2)
    ahead, behind = group.ears
    for number in range(3):
        for frame in group.frames(0, [1.0] * 500_000, number=number, cut=1 << 20):
            group.say(frame)
    assert not group.session.may_read(ahead)
    assert group.session.may_read(behind)
    group.say(next(group.frames(1, [1.0] * 4, stream=1)))
    assert group.session.may_read(ahead)
