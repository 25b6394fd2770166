"""The clerks' turns: at once, or a moment later together with what comes meanwhile."""

from __future__ import annotations

import threading

import pytest

from agents.links.work_queue import WorkQueue
from tests.harness.shell import wait_for


class Taker:
    def __init__(self):
        self.turns = 0
        self.at_work, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def turn(self):
        self.turns += 1
        self.at_work.set()
        self.go_on.wait(30)
        return False


@pytest.fixture
def turns():
    turns = WorkQueue(2)
    yield turns
    turns.stop()


def test_asking_for_later_is_overtaken_by_asking_for_now_and_is_then_done(turns):
    patient, other = Taker(), Taker()
    turns.ask(patient, 3600)
    turns.ask(other)
    wait_for(lambda: other.turns == 1, "the other's turn")
    assert patient.turns == 0
    turns.ask(patient)
    wait_for(lambda: patient.turns == 1, "its turn now")
    turns.ask(other, 0.02)
    turns.ask(other, 0.02)
    wait_for(lambda: other.turns == 2, "its turn a moment later")
    assert not turns._later and patient.turns == 1


def test_what_is_asked_for_during_a_turn_gives_another_one(turns):
    taker = Taker()
    taker.go_on.clear()
    turns.ask(taker)
    assert taker.at_work.wait(30)
    turns.ask(taker, 0.01)
    wait_for(lambda: not turns._later, "the moment to be over")
    assert taker.turns == 1  # never two turns of one taker at a time
    taker.go_on.set()
    wait_for(lambda: taker.turns == 2, "the other turn")
