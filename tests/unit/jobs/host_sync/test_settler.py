"""The thread of the dispatcher that settles preparations: nobody waits for it, and it takes all that gathered."""

from __future__ import annotations

import queue
import threading

import pytest
from django.db import OperationalError

from agents.links.control_plane import PreparationName, PreparationReport
from jobs.host_sync import control_plane, settler
from jobs.host_sync.control_plane import JobsControlPlane
from jobs.host_sync.settler import SettlerThread
from tests.unit.jobs.fake_hosts import InlineDecider, NoShipping

PATIENCE_S = 60
NAME = PreparationName("tree", "key", 1)


class Settling:
    """Instead of `prepared.settle`: says for which hosts it was called, and goes on when it is let."""

    def __init__(self):
        self.hosts, self.gate, self.errors = queue.Queue(), threading.Event(), []
        self.gate.set()

    def __call__(self, now, hosts):
        self.hosts.put(sorted(hosts))
        self.gate.wait(PATIENCE_S)
        if self.errors:
            raise self.errors.pop()
        return {7}, {8}

    def next(self):
        return self.hosts.get(timeout=PATIENCE_S)


@pytest.fixture
def settling(monkeypatch):
    settling = Settling()
    monkeypatch.setattr(settler.prepared, "settle", settling)
    return settling


@pytest.fixture
def told():
    return queue.Queue()


@pytest.fixture
def thread(settling, told):
    thread = SettlerThread(lambda jobs, hosts: told.put((jobs, hosts)))
    yield thread
    settling.gate.set()
    thread.stop()


def test_what_gathers_while_it_settles_is_settled_together(thread, settling, told):
    settling.gate.clear()
    thread.submit(1)
    assert settling.next() == [1]
    assert thread.stuck_s() > 0
    for host in (3, 2, 3):
        thread.submit(host)
    settling.gate.set()
    assert settling.next() == [2, 3]
    assert told.get(timeout=PATIENCE_S) == ({7}, {8})


def test_progress_waits_until_it_is_time_and_an_end_does_not(thread, settling, monkeypatch):
    monkeypatch.setattr(settler, "PROGRESS_S", 10_000)
    thread.submit(1, progress=True)
    thread.submit(2, progress=True)
    assert settling.hosts.empty()
    thread.submit(3)
    assert settling.next() == [1, 2, 3]


def test_progress_alone_is_written_too(thread, settling):
    thread.submit(1, progress=True)
    assert settling.next() == [1]


def test_what_met_no_database_is_settled_when_there_is_one(thread, settling, monkeypatch):
    monkeypatch.setattr(settler, "RETRY_S", 0.01)
    settling.errors = [OperationalError("gone")]
    thread.submit(1)
    assert settling.next() == [1] and settling.next() == [1]


def test_a_fault_ends_no_thread(thread, settling, monkeypatch):
    monkeypatch.setattr(settler, "RETRY_S", 0.01)
    settling.errors = [ValueError("a fault")]
    thread.submit(1)
    assert settling.next() == [1]
    thread.submit(2)
    assert settling.next() == [2]


@pytest.mark.parametrize(("state", "progress"), [("WORKING", True), ("READY", False), ("LOST", False)])
def test_whoever_stores_reports_does_not_settle(thread, settling, monkeypatch, state, progress):
    """Not even while the lock of the job is held."""
    asked = []
    monkeypatch.setattr(thread, "submit", lambda host, progress: asked.append((host, progress)))
    monkeypatch.setattr(control_plane.prepared, "store", lambda *report: None)
    plane = JobsControlPlane(lambda hosts: (), InlineDecider(), thread, NoShipping(thread.submit))
    plane.store_preparations(5, 1, [PreparationReport(NAME, state)])
    assert asked == [(5, progress)] and settling.hosts.empty()
