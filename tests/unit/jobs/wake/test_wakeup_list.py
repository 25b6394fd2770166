"""Wake-up lists: one dispatcher takes each entry, an outage is logged once, and nothing depends on them."""

from __future__ import annotations

import threading
import time

import pytest

from agents.infra.outbox import Outbox
from jobs.wake import hints, wakeup_list
from tests.harness.services import Redis
from tests.harness.wait_and_processes import wait_for


@pytest.fixture
def redis_server(settings):
    server = Redis().start()
    settings.REDIS_URL = server.url
    wakeup_list._pushing_client.cache_clear()
    yield server
    wakeup_list._pushing_client.cache_clear()
    server.close()


@pytest.fixture
def listen():
    listeners = []

    def start(*doors):
        heard = []
        listeners.append(
            wakeup_list.Listener(doors, heard.append, lambda hosts: heard.append(("watch", hosts)))
        )
        listeners[-1].start()
        return heard

    yield start
    for listener in listeners:
        listener.stop()


def test_a_hint_reaches_its_dispatcher_and_a_common_hint_reaches_one(redis_server, listen, caplog):
    mine, theirs = listen("dispatch.mine", "dispatch"), listen("dispatch.theirs", "dispatch")
    hints.send("jobs.tasks.dispatch", [7, 5], "dispatch.mine")
    wait_for(lambda: mine == [[5, 7]], "my own word")
    hints.send("jobs.tasks.watch", [7, 5], "dispatch.mine")
    wait_for(lambda: mine == [[5, 7], ("watch", [5, 7])], "my own word about what the hosts watch")
    del mine[1]
    hints.send("jobs.tasks.schedule", [], None)
    wait_for(lambda: sorted(mine + theirs) == [[], [5, 7]], "one of us to hear it")
    redis_server.kill()
    wait_for(lambda: caplog.text.count("Redis is unavailable") == 2, "both to notice")
    redis_server.start()
    wakeup_list.push("dispatch.theirs", [9])
    wait_for(lambda: [9] in theirs, "it to be heard after the outage")
    assert caplog.text.count("Redis is unavailable") == 2


def test_a_hint_that_no_dispatcher_takes_expires(redis_server):
    for number in range(wakeup_list.MAX_WAITING + 5):
        wakeup_list.push("dispatch", [number])
    waiting = wakeup_list.client()
    assert waiting.llen("ty:bell:dispatch") == wakeup_list.MAX_WAITING
    assert 0 < waiting.ttl("ty:bell:dispatch") <= wakeup_list.KEEP_S


def test_without_redis_a_hint_is_a_task(monkeypatch, settings, tmp_path):
    settings.REDIS_URL = f"unix://{tmp_path}/nobody?db=0"
    wakeup_list._pushing_client.cache_clear()
    sent = []
    monkeypatch.setattr(
        hints.current_app, "send_task", lambda task, **rest: sent.append((task, rest["queue"]))
    )
    hints.send("jobs.tasks.dispatch", [1], "dispatch.mine")
    wakeup_list._pushing_client.cache_clear()
    assert sent == [("jobs.tasks.dispatch", "dispatch.mine")]


def test_hints_that_gather_while_the_outbox_sends_are_joined():
    batches, speaking, go_on = [], threading.Event(), threading.Event()

    def tell(batch):
        batches.append(batch)
        speaking.set()
        go_on.wait(30)

    outbox = Outbox("test", lambda: tell)
    outbox.post("a", [1])
    assert speaking.wait(30)
    for number in range(100):
        outbox.post("a", [number % 3])
    outbox.post("b")
    go_on.set()
    wait_for(lambda: len(batches) == 2, "the rest in one batch")
    assert batches == [{"a": {1}}, {"a": {0, 1, 2}, "b": set()}]


def test_a_key_that_was_sent_rests_and_delays_no_other_key():
    sent = []
    outbox = Outbox("test", lambda: lambda batch: sent.append((time.monotonic(), batch)), rest_s=0.5)
    outbox.post("busy", [0])
    wait_for(lambda: sent, "the first of the busy key")
    outbox.post("busy", [1])
    outbox.post("busy", [2])
    posted = time.monotonic()
    outbox.post("rare")
    wait_for(lambda: len(sent) == 3, "all of them")
    (first, _), (rare, among), (second, last) = sent
    assert among == {"rare": set()} and last == {"busy": {1, 2}}
    assert second - first >= 0.5 > rare - posted


def test_a_key_that_rests_is_sent_when_the_process_ends():
    sent = []
    outbox = Outbox("test", lambda: sent.append, rest_s=600)
    outbox.post("busy", [0])
    wait_for(lambda: sent, "the first of the busy key")
    outbox.post("busy", [1])
    outbox.finish()
    assert sent == [{"busy": {0}}, {"busy": {1}}]


def test_a_process_that_ends_sends_its_last_hints():
    """A command that exits while a client of the broker holds its lock would hang at the end of the interpreter."""
    told, speaking, go_on = [], threading.Event(), threading.Event()

    def tell(batch):
        speaking.set()
        go_on.wait(30)
        told.append(batch)

    outbox = Outbox("test", lambda: tell)
    outbox.post("a", [1])
    assert speaking.wait(30)
    outbox.post("b", [2])
    threading.Timer(0.2, go_on.set).start()
    outbox.finish()
    assert told == [{"a": {1}}, {"b": {2}}]
