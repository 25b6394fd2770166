"""The thread of the dispatcher that decides: when it decides, when it places, and which pause delays what."""

from __future__ import annotations

import queue
import time
from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.host_sync import decider
from jobs.host_sync.decider import DeciderThread
from jobs.lifecycle.advance import Advanced

PATIENCE_S = 60


@pytest.fixture
def done(monkeypatch):
    """What the thread does, in order. The pause after a decision or a placement lasts for ever."""
    done = queue.Queue()

    def advance(jobs, now):
        done.put(("decide", jobs))
        return Advanced(freed=99 in jobs)

    def schedule(now):
        done.put(("place",))
        return frozenset()

    monkeypatch.setattr(decider, "advance_quietly", advance)
    monkeypatch.setattr(decider, "schedule_quietly", schedule)
    monkeypatch.setattr(decider, "_end_of_pause", lambda began: time.monotonic() + 10_000)
    return done


@pytest.fixture
def thread(done):
    thread = DeciderThread(lambda hosts: ())
    yield thread
    thread.stop()


def test_placing_does_not_wait_for_the_pause_after_a_decision(thread, done):
    thread.submit([1])
    assert done.get(timeout=PATIENCE_S) == ("decide", [1])
    thread.submit([2])
    thread.submit((), place=True)
    assert done.get(timeout=PATIENCE_S) == ("place",)
    thread.stop()
    assert done.empty()  # the second job waits for the end of the pause


def test_deciding_does_not_wait_for_the_pause_after_a_placement(thread, done):
    thread.submit((), place=True)
    assert done.get(timeout=PATIENCE_S) == ("place",)
    thread.submit((), place=True)
    thread.submit([1, 99])
    assert done.get(timeout=PATIENCE_S) == ("decide", [1, 99])
    assert done.get(timeout=PATIENCE_S) == ("place",)  # freed capacity is placed at once


def test_a_batch_is_decided_before_it_is_placed(done, monkeypatch):
    monkeypatch.setattr(decider.threading.Thread, "start", lambda self: None)
    thread = DeciderThread(lambda hosts: ())
    thread.submit([2], place=True)
    thread.submit([1])
    thread._decide_and_place(*thread._next()[::2])
    assert [done.get_nowait(), done.get_nowait()] == [("decide", [1, 2]), ("place",)]
    assert thread._pause() is None


def test_a_job_whose_retry_waits_is_offered_a_place_as_soon_as_its_wait_is_over(done, monkeypatch):
    at = timezone.now() + timedelta(seconds=0.3)
    monkeypatch.setattr(decider, "advance_quietly", lambda jobs, now: Advanced(retries_at={1: at}))
    monkeypatch.setattr(decider, "_end_of_pause", lambda began: time.monotonic())
    monkeypatch.setattr(decider.faulty_jobs, "offer_again", lambda now: done.put(("offer", now >= at)))
    thread = DeciderThread(lambda hosts: ())
    thread.submit([1])
    assert done.get(timeout=PATIENCE_S) == ("offer", True)
    assert done.get(timeout=PATIENCE_S) == ("place",)
    thread.submit((), place=True)
    assert done.get(timeout=PATIENCE_S) == ("place",)  # each wait ends once
    thread.stop()


def test_a_restart_that_waits_is_decided_as_soon_as_its_wait_is_over(done, monkeypatch):
    at = timezone.now() + timedelta(seconds=0.3)
    decided = queue.Queue()

    def advance(jobs, now):
        decided.put((jobs, timezone.now()))
        return Advanced(restarts_at={7: at} if 1 in jobs else {})

    monkeypatch.setattr(decider, "advance_quietly", advance)
    monkeypatch.setattr(decider, "_end_of_pause", lambda began: time.monotonic())
    thread = DeciderThread(lambda hosts: ())
    thread.submit([1])
    assert decided.get(timeout=PATIENCE_S)[0] == [1]
    time.sleep(0.1)
    assert thread.stuck_s() == 0.0  # a wait is no sign that the thread hangs
    jobs, when = decided.get(timeout=PATIENCE_S)
    assert jobs == [7] and when >= at
    thread.submit([2])
    assert decided.get(timeout=PATIENCE_S)[0] == [2]  # each wait ends once
    thread.stop()
