"""/healthz reports what is broken and what is late, and nothing that anybody should not read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta

import pytest
from django.utils import timezone

from agents import clock_keeper
from agents.infra import clock
from agents.models import Dispatcher, MachineClock
from console.runtime import health
from jobs.models import Tick
from tests.harness.services import Redis
from tests.unit.jobs.conftest import kept_time

__all__ = ["kept_time"]

pytestmark = pytest.mark.django_db


def test_a_missing_broker_is_broken_and_no_address_is_shown(client):
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["status"] == "broken"
    assert answer.json()["broken"] == ["broker: ConnectionError"]


@pytest.mark.parametrize(
    ("sweep_s", "seen_s", "late"),
    [(1, 1, []), (31, 1, ["worker"]), (1, 31, ["dispatcher"]), (None, None, ["worker", "dispatcher"])],
)
def test_a_worker_or_dispatcher_not_seen_lately_is_late(monkeypatch, sweep_s, seen_s, late):
    monkeypatch.setattr(health, "broker_problem", lambda: "")
    now = timezone.now()
    if sweep_s is not None:
        Tick.objects.create(name="sweep", at=now - timedelta(seconds=sweep_s))
        Dispatcher.objects.create(name="d1", seen_at=now - timedelta(seconds=seen_s))
    seen = health.check(now)
    assert [line.partition(":")[0] for line in seen.late] == late
    assert seen.status == ("late" if late else "ok")


def test_a_clock_that_was_set_is_told_in_numbers(client, monkeypatch):
    now = timezone.now()
    monkeypatch.setattr(clock, "date_clock", lambda: now.timestamp() + 7200)
    clock_keeper.record("the clock of gpu-7", 7200.0, now)
    clock_keeper.record("the clock of gpu-7", 7200.5, now)
    body = client.get("/healthz").json()
    assert (body["clock_jumps"], round(body["clock_ahead_s"])) == (1, -7200)
    assert "gpu-7" not in str(body)


@pytest.mark.parametrize("apart_s", [0.0, 7200.0])
def test_it_says_whether_ages_are_in_doubt_and_not_why(client, kept_time, apart_s):
    MachineClock.objects.update(database_s=apart_s)
    answer = client.get("/healthz")
    assert answer.json()["ages_in_doubt"] is (apart_s > 0) and "2:00:00" not in answer.text


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({}, ""),
        ({"stuck_s": 29.0}, ""),
        ({"stuck_s": 63.0}, "a piece of work has taken 63 s"),
        ({"threads_gone": 1}, "a worker thread has died"),
    ],
)
def test_a_dispatcher_whose_work_is_stuck_is_late(client, monkeypatch, known, words):
    monkeypatch.setattr(health, "broker_problem", lambda: "")
    now = timezone.now()
    Tick.objects.create(name="sweep", at=now)
    Dispatcher.objects.create(name="d1", seen_at=now, **known)
    answer = client.get("/healthz").json()
    assert answer["status"] == ("late" if words else "ok")
    assert words in " ".join(answer["late"]) and answer["stuck_s"] == known.get("stuck_s", 0)


def test_many_requests_at_once_wait_for_a_connection(settings):
    """Many requests at once must not make the broker look broken: a load balancer would then take the site offline."""
    server = Redis().start()
    try:
        settings.REDIS_URL = server.url
        pool = health._client(server.url).connection_pool
        taken = [pool.get_connection() for _ in range(4)]
        with ThreadPoolExecutor(1) as visitor:
            answer = visitor.submit(health.broker_problem)
            wait([answer], timeout=0.3)
            pool.release(taken.pop())
            assert answer.result(30) == ""
        for each in taken:
            pool.release(each)
        pool.disconnect()
    finally:
        health._client.cache_clear()
        server.close()
