"""Hints about studies: however many come while one is looked at, it is looked at once more."""

from __future__ import annotations

import threading

from agents.infra.outbox import Outbox
from jobs import tasks
from jobs.tuning import tuner
from tests.harness.wait_and_processes import wait_for


def test_a_study_is_looked_at_once_for_many_hints(monkeypatch):
    looked, may_go_on = [], threading.Event()

    def advance(ids, clock):
        looked.append(sorted(ids))
        assert may_go_on.wait(60)

    monkeypatch.setattr(tuner, "advance", advance)
    monkeypatch.setattr(tuner, "_studies", Outbox("studies of a test", tuner._looking))
    tuner.put([1])
    wait_for(lambda: looked, "the first look")
    for _ in range(20):
        tuner.put([1, 2])
    may_go_on.set()
    wait_for(lambda: len(looked) == 2, "the second look")
    tuner._studies.finish()
    assert looked == [[1], [1, 2]]


def test_a_fault_ends_no_later_look(monkeypatch, caplog):
    looked = []

    def advance(ids, clock):
        looked.append(sorted(ids))
        raise ValueError("a mistake")

    monkeypatch.setattr(tuner, "advance", advance)
    monkeypatch.setattr(tuner, "_studies", Outbox("studies of a test", tuner._looking))
    for number in (1, 2):
        tuner.put([number])
        wait_for(lambda number=number: len(looked) == number, "the look")
    tuner._studies.finish()
    assert looked == [[1], [2]] and "Tuning jobs [1] could not be looked at" in caplog.text


def test_a_hint_leaves_the_study_to_the_tuner(monkeypatch):
    """A task that looked itself would wait for the row of the study, and keep a thread of the worker meanwhile."""
    looked, put = [], []
    monkeypatch.setattr(tuner, "advance", lambda ids, clock: looked.append(ids))
    monkeypatch.setattr(tuner, "put", put.append)
    tasks.tune([1, 2])
    assert (put, looked) == ([[1, 2]], [])
