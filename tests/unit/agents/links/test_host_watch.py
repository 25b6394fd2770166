"""What a host is to watch, free or remove: asked for now and then, and at once after a hint."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from agents.hosts import gpu_quarantine, kept
from agents.links import fleet, host_watch
from agents.links.host_thread import HostThread
from agents.links.host_watch import DISCARDS_S, HostWatch


class Sent:
    def __init__(self):
        self.frames = []

    def send(self, frame):
        self.frames.append(frame)


@pytest.fixture
def discards(monkeypatch):
    """What is to be removed, without a database."""
    found = []
    nothing = gpu_quarantine.WatchedGpus((), (), ())
    monkeypatch.setattr(gpu_quarantine, "watched_gpus", lambda host: nothing)
    monkeypatch.setattr(host_watch.host_load, "is_wanted", lambda host: False)
    monkeypatch.setattr(kept, "to_discard", lambda host: list(found))
    return found


def asked(link):
    return [frame["key"] for frame in link.frames if frame["t"] == "discard"]


def test_a_removal_that_a_hint_tells_of_is_sent_at_the_next_comparison(discards):
    watch, link = HostWatch(1), Sent()
    watch.send(link, 100.0)
    discards.append(("blobs", "aa"))
    watch.send(link, 101.0)
    assert asked(link) == [], "the database is not asked at each comparison"
    watch.look_soon()
    watch.send(link, 101.1)
    assert asked(link) == ["aa"]


def test_a_removal_whose_hint_was_lost_is_sent_all_the_same(discards):
    watch, link = HostWatch(1), Sent()
    watch.send(link, 100.0)
    discards.append(("blobs", "aa"))
    watch.send(link, 100.0 + DISCARDS_S)
    assert asked(link) == ["aa"]


def test_each_removal_is_asked_for_once_a_link_until_it_is_answered(discards, monkeypatch):
    watch, link = HostWatch(1), Sent()
    discards += [("blobs", "aa"), ("trees", "bb")]
    for now in (100.0, 200.0, 300.0):
        watch.send(link, now)
    assert asked(link) == ["aa", "bb"]
    monkeypatch.setitem(host_watch._RECORDERS, "discarded", lambda *_: True)
    watch.record({"t": "discarded", "kind": "blobs", "key": "aa", "why": "it is in use"}, 1)
    watch.send(link, 400.0)
    assert asked(link) == ["aa", "bb", "aa"], "an admin has asked again"
    watch.begin()
    watch.send(link, 500.0)
    assert asked(link) == ["aa", "bb", "aa", "aa", "bb"]


def test_a_hint_about_what_a_host_watches_reaches_it_before_it_compares(monkeypatch):
    host, queued = HostThread.__new__(HostThread), []
    host._watch, host._compare_due = HostWatch(5), False
    host._watch._looked_at = host._watch._discards_at = 7.0
    host._work_queue = SimpleNamespace(enqueue=lambda thread: queued.append(thread._watch._looked_at))
    one = fleet.Fleet.__new__(fleet.Fleet)
    one._hosts, one._poked, one._woken = {5: host}, [], threading.Event()
    host._link = SimpleNamespace(ready=True, ended=False, hello=True)
    monkeypatch.setattr(fleet, "_running", [one])
    monkeypatch.setattr(HostThread, "up", True)
    fleet.wake_hosts([5, 6])
    fleet.watch_hosts([5, 6])
    assert queued == [7.0, 0.0] and host._watch._discards_at == 0.0
