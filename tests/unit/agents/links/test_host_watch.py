"""What a host is to watch, free or remove: asked for now and then, and at once after a hint."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agents.hosts import gpu_quarantine, kept
from agents.links import host_watch
from agents.links.fleet import Fleet
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


def test_a_fleet_tells_its_host_before_it_compares():
    told, fleet = [], Fleet.__new__(Fleet)
    fleet._hosts = {5: SimpleNamespace(watch_soon=lambda: told.append("watch"))}
    fleet.poke = lambda hosts: told.append(list(hosts))
    fleet.watch([5, 6])
    assert told == ["watch", [5, 6]]
