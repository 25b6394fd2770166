"""When a host's runs are compared with what is wanted: at once where that pays, else at the next tick."""

from __future__ import annotations

import time
import types
from collections import deque

import pytest

from agents.links.control_plane import Arrival, Fact, LogEnd, MetricsEnd
from agents.links.fleet import FleetSettings
from agents.links.host_thread import HostThread
from agents.links.orders import SentOrders

CLOSED = Arrival("r", Fact({"run": "r", "phase": "closed"}))


@pytest.fixture
def host():
    """A host thread with an open link, whose control plane stores everything."""
    host = HostThread.__new__(HostThread)
    host.host_id, host.lease = 1, types.SimpleNamespace(token=1, good=lambda: True)
    accepted = types.SimpleNamespace(current=True, acks={}, pulls={})
    host._control_plane = types.SimpleNamespace(store_reports=lambda *_: accepted)
    host._settings, host._status_updates = FleetSettings("d", tick_s=1.0), deque()
    host._compare_due, host._changing, host._last_comparison_at = False, False, time.monotonic()
    host._ticked_at = host._last_comparison_at
    host.queued = []
    host._work_queue = types.SimpleNamespace(enqueue=host.queued.append)
    host._link = types.SimpleNamespace(
        inbox=[], sent=SentOrders(), excuse=None, check=lambda *_: False, misbehaviour=""
    )
    host._link.inbox = types.SimpleNamespace(done=lambda count: None, __len__=lambda: 0)
    return host


def stored(host, *arrivals):
    host._store_batch(host._link, list(arrivals))
    host._link.inbox = ()


@pytest.mark.parametrize("last", [CLOSED, Arrival("r", LogEnd(0, ""))], ids=["closed", "log_end"])
def test_the_end_of_a_run_is_compared_with_all_that_end_until_the_next_tick(host, last):
    stored(host, last)
    assert not host._compare_due
    host.tick(host._last_comparison_at + 0.9)
    assert not host.queued
    host.tick(host._last_comparison_at + 1.1)
    assert host._compare_due and host.queued == [host]


def test_what_is_answered_with_the_next_order_is_compared_at_once(host):
    stored(host, CLOSED, Arrival("r", MetricsEnd(0, "")))
    assert host._compare_due
