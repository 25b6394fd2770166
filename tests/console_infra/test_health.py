"""/healthz: what is broken, what is late, and nothing that a stranger should not read."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.models import Dispatcher
from console import health
from jobs.models import Tick

pytestmark = pytest.mark.django_db


def test_a_missing_broker_is_broken_and_says_no_address(client):
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["status"] == "broken"
    assert answer.json()["broken"] == ["broker: ConnectionError"]


@pytest.mark.parametrize(
    ("sweep_s", "seen_s", "late"),
    [(1, 1, []), (31, 1, ["worker"]), (1, 31, ["dispatcher"]), (None, None, ["worker", "dispatcher"])],
)
def test_silence_of_a_worker_or_dispatcher_is_late(monkeypatch, sweep_s, seen_s, late):
    monkeypatch.setattr(health, "ask_broker", lambda: "")
    now = timezone.now()
    if sweep_s is not None:
        Tick.objects.create(name="sweep", at=now - timedelta(seconds=sweep_s))
        Dispatcher.objects.create(name="d1", seen_at=now - timedelta(seconds=seen_s))
    seen = health.look(now)
    assert [line.partition(":")[0] for line in seen.late] == late
    assert seen.word == ("late" if late else "ok")
