"""Answers that many pages ask for: kept for a while, and longer as long as nothing has changed."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest

from agents.infra import shared_answers
from agents.infra.shared_answers import SharedAnswers


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(shared_answers, "time", clock)
    return clock


def test_an_answer_counts_for_a_while_and_longer_while_its_stamp_is_the_same(clock):
    numbers, stamp = count(), ["a"]
    answers = SharedAnswers(timedelta(seconds=2), 4, timedelta(seconds=60))

    def get(after_s=0.0):
        clock.now += after_s
        return answers.get("key", lambda: next(numbers), lambda: stamp[0])

    assert [get(), get(1.9), get(50)] == [0, 0, 0]
    stamp[0] = "b"
    assert [get(), get(1), get(1.5)] == [1, 1, 1]
    stamp[0] = "c"
    assert get(1) == 2  # changed within the seconds for which it was not asked
    assert [get(59), get(1)] == [2, 3]  # however long nothing changes


def test_a_stamp_is_read_before_its_answer(clock):
    """What changes while the answer is made may be in it or not: it does not count longer."""
    stamp = ["a"]
    answers = SharedAnswers(timedelta(seconds=2), 4, timedelta(seconds=60))

    def computed():
        before, stamp[0] = stamp[0], "b"
        return before

    assert answers.get("key", computed, lambda: stamp[0]) == "a"
    clock.now += 3
    assert answers.get("key", computed, lambda: stamp[0]) == "b"


def test_an_answer_that_is_not_to_be_kept_counts_for_who_asked(clock):
    numbers = count()
    answers = SharedAnswers(timedelta(seconds=60), 4)
    got = [answers.get("key", lambda: next(numbers), keep=lambda number: number == 2) for _ in range(5)]
    assert got == [0, 1, 2, 2, 2]


def test_without_a_stamp_an_answer_ends(clock):
    numbers = count()
    answers = SharedAnswers(timedelta(seconds=2), 4)
    found = [answers.get("key", lambda: next(numbers))]
    clock.now += 1.9
    found.append(answers.get("key", lambda: next(numbers)))
    clock.now += 0.1
    assert [*found, answers.get("key", lambda: next(numbers))] == [0, 0, 1]
