"""The dispatcher's thinker: when it decides, when it places, and what waits for what."""

from __future__ import annotations

import queue
import time

import pytest

from jobs.host_sync import control_plane
from jobs.host_sync.control_plane import DeciderThread
from jobs.lifecycle.advance import Advanced

PATIENCE_S = 60


@pytest.fixture
def done(monkeypatch):
    """What the thinker does, in order. It rests for ever from whatever it has done."""
    done = queue.Queue()

    def advance(jobs, now):
        done.put(("decide", jobs))
        return Advanced(freed=99 in jobs)

    def schedule(now):
        done.put(("place",))
        return frozenset()

    monkeypatch.setattr(control_plane, "advance_quietly", advance)
    monkeypatch.setattr(control_plane, "schedule_quietly", schedule)
    monkeypatch.setattr(control_plane, "_after_rest", lambda began: time.monotonic() + 10_000)
    return done


@pytest.fixture
def thinker(done):
    thinker = DeciderThread(lambda hosts: ())
    yield thinker
    thinker.stop()


def test_who_waits_for_a_place_does_not_wait_for_a_rest_from_facts(thinker, done):
    thinker.think([1])
    assert done.get(timeout=PATIENCE_S) == ("decide", [1])
    thinker.think([2])
    thinker.think((), anew=True)
    assert done.get(timeout=PATIENCE_S) == ("place",)
    thinker.stop()
    assert done.empty()  # the second fact waited


def test_facts_do_not_wait_for_a_rest_from_placing(thinker, done):
    thinker.think((), anew=True)
    assert done.get(timeout=PATIENCE_S) == ("place",)
    thinker.think((), anew=True)
    thinker.think([1, 99])
    assert done.get(timeout=PATIENCE_S) == ("decide", [1, 99])
    assert done.get(timeout=PATIENCE_S) == ("place",)  # what was freed is given out at once


def test_what_came_together_is_decided_before_it_is_placed(done, monkeypatch):
    monkeypatch.setattr(control_plane.threading.Thread, "start", lambda self: None)
    thinker = DeciderThread(lambda hosts: ())
    thinker.think([2], anew=True)
    thinker.think([1])
    thinker._decide(*thinker._next()[::2])
    assert [done.get_nowait(), done.get_nowait()] == [("decide", [1, 2]), ("place",)]
    assert thinker._pause() is None
