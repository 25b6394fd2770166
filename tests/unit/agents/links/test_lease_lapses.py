"""A dispatcher that must not send for a while, or was suspended: it sends nothing, and blames no host for it."""

from __future__ import annotations

import queue
import threading
import time
import types
from collections import deque

import pytest

from agents.infra import clock
from agents.links import fleet as fleets
from agents.links import host_thread, leases, link
from agents.links.control_plane import Arrival, Fact
from agents.links.host_thread import FleetSettings, HostThread
from agents.links.host_watch import HostWatch
from agents.links.inbox import Inbox
from agents.links.stream import LEASE_POLL_S, Stream
from agents.runner.wire import encode
from tests.unit.agents.memory_channel import MemoryChannel


def test_a_suspended_dispatcher_does_not_blame_its_hosts(monkeypatch):
    clock, pauses, asked = [100.0], iter([0.25, 0.3, 20.0, 0.25]), []

    def wait(every):
        pause = next(pauses, None)
        clock[0] += pause or 0.0
        return pause is None

    monkeypatch.setattr(fleets.time, "monotonic", lambda: clock[0])
    host = HostThread.__new__(HostThread)
    host.lease, host._settings = types.SimpleNamespace(good=lambda: True), FleetSettings("d", tick_s=0.25)
    host._status_updates, host._compare_due, host._changing = deque(), False, False
    host._last_comparison_at, host._ticked_at = 1e9, 100.0
    host._link = types.SimpleNamespace(
        inbox=(),
        excuse=lambda gap, now: asked.append(f"excused {gap:g}"),
        check=lambda *_: asked.append("checked"),
    )
    fleet = fleets.Fleet.__new__(fleets.Fleet)
    fleet._settings, fleet._hosts = host._settings, {1: host}
    fleet._stopping = types.SimpleNamespace(wait=wait)
    fleet._heartbeat()
    assert asked == ["checked", "checked", "excused 20", "checked"]


def test_unanswered_time_adds_up_over_lapses_of_the_lease():
    """Else a host that is gone would stay up for as long as a slow database makes leases lapse."""
    opened = link.Link.__new__(link.Link)
    opened.heard_at = opened.opened_at = 100.0
    for now in (101.0, 103.0, 105.0):  # the lease was valid for one of each two seconds
        opened.excuse(1.0, now)
    assert opened.heard_at == 103.0
    opened.excuse(60.0, 106.0)
    assert opened.heard_at == 106.0


def test_a_host_that_is_stopped_while_its_link_opens_leaves_nothing_behind(monkeypatch):
    thread, closed = HostThread.__new__(HostThread), []
    thread._settings, thread._console, thread._seal_owner = FleetSettings("d"), "c", None
    thread.lease, thread.target = types.SimpleNamespace(token=1), types.SimpleNamespace(name="gpu01")
    thread._link, thread._stopping, thread._watch = None, False, HostWatch(1)

    def open_link(*_):
        thread.stop()
        return types.SimpleNamespace(close=lambda: closed.append("link"), listen=None)

    thread._wake = threading.Event()
    monkeypatch.setattr(host_thread, "Link", open_link)
    thread._listen(None)
    assert closed == ["link"]


def test_database_work_without_the_lease_does_nothing_and_is_not_repeated():
    """Between the end of a lease and the end of its link the inbox is kept, and no worker thread spins."""
    thread = HostThread.__new__(HostThread)
    thread._status_updates, thread._stopping, thread._compare_due = deque(), False, True
    thread._link = types.SimpleNamespace(inbox=Inbox(), ready=True)
    thread._link.inbox.put(Arrival("r1", Fact({"phase": "closed"})))
    thread.lease = types.SimpleNamespace(good=lambda: False)
    assert thread.do_work() is False and len(thread._link.inbox) == 1


def test_a_stream_sends_nothing_while_the_lease_has_lapsed_and_goes_on_after():
    """A lease that was renewed late belonged to nobody else: queued messages are still true, and the link stays."""
    may, channel = threading.Event(), MemoryChannel()
    may.set()
    stream = Stream(channel, may.is_set, "test")
    stream.send({"t": "ping", "id": 1})
    assert channel.sent.get(timeout=30) == encode({"t": "ping", "id": 1})
    may.clear()
    stream.send({"t": "start", "run": "r"}, b"{}")
    with pytest.raises(queue.Empty):
        channel.sent.get(timeout=5 * LEASE_POLL_S)
    assert not channel.closed.is_set()
    may.set()
    assert channel.sent.get(timeout=30) == encode({"t": "start", "run": "r"}, b"{}")
    stream.close()


def test_a_stream_that_ends_during_a_lapse_sends_nothing_more():
    channel = MemoryChannel()
    stream = Stream(channel, lambda: False, "test")
    stream.send({"t": "start", "run": "r"}, b"{}")
    time.sleep(2 * LEASE_POLL_S)
    stream.close()
    assert channel.closed.wait(30)
    stream._writer.join(30)
    assert not stream._writer.is_alive() and channel.sent.empty()


def test_a_lease_ends_before_others_may_take_it_however_the_clock_is_set(monkeypatch):
    began = clock.elapsed()
    lease = leases.Lease(1, 10.0, began)
    assert lease.good()
    for set_to in (7200.0, -3600.0, -86400.0):
        now = time.time()
        monkeypatch.setattr(time, "time", lambda set_to=set_to, now=now: now + set_to)
        assert lease.good(), "somebody set the clock"
        monkeypatch.undo()
    monkeypatch.setattr(clock, "elapsed", lambda: began + 8.1)
    assert not lease.good(), "time passed; sleep of the machine counts"
    lease.extend(10.0, began + 8.1)
    assert lease.good()
