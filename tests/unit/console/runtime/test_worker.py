"""The worker sweeps by its own timer: beat and the broker may be unavailable."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from celery.worker.state import revoked
from django.conf import settings
from django.db import InterfaceError, InternalError, OperationalError, connection
from django.utils import timezone
from kombu.utils.imports import symbol_by_name

from console.runtime.task_connections import Fixup
from console.runtime.timed_request import TimedRequest
from console.runtime.worker import SweepTimer, app
from jobs import sweep as sweeping
from jobs import tasks
from jobs.models import Tick
from tests.harness.wait_and_processes import wait_for


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(settings, "TRAINYARD", replace(settings.TRAINYARD, tick_s=0.02))


@pytest.mark.django_db(transaction=True)
def test_without_beat_the_worker_sweeps_by_its_own_timer_and_survives_a_failure(quick, monkeypatch, caplog):
    """Failure mode 9: no message arrives."""
    begin, task, calls = timezone.now(), app.tasks[tasks.sweep.name], []
    real = task.run

    def sweep():
        calls.append(threading.current_thread().name)
        if len(calls) == 1:
            raise ConnectionError("the database is away")
        real()

    monkeypatch.setattr(task, "run", sweep)
    timer = SweepTimer(None)
    timer.start(None)
    try:
        wait_for(lambda: Tick.objects.filter(name="sweep", at__gte=begin).exists(), "a sweep")
    finally:
        timer.stop(None)
        timer.thread.join(30)
        timer.clock._thread.join(30)
    assert not timer.thread.is_alive() and set(calls) == {"sweep-timer"}
    assert "the sweep failed" in caplog.text


@pytest.mark.parametrize("problem", [OperationalError, InterfaceError, InternalError])
def test_a_task_does_not_fail_when_the_database_is_unavailable(problem, monkeypatch, caplog):
    """A server that dropped our connection gives InternalError. A traceback each second would hide the cause."""

    def away(now):
        raise problem("terminating connection due to idle-in-transaction timeout")

    monkeypatch.setattr(sweeping, "sweep", away)
    for _ in range(2):
        assert app.tasks[tasks.sweep.name].apply().failed()
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
    monkeypatch.setattr(sweeping, "sweep", lambda now: 1 / 0)
    app.tasks[tasks.sweep.name].apply()
    assert "ZeroDivisionError" in caplog.text and "ERROR" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_after_a_task_sqlite_stays_open_and_postgresql_goes_back_to_the_pool():
    """Opening SQLite's file costs more than a sweep that finds nothing. After an error it is opened anew."""
    (fixup,) = (each for each in app._fixups if isinstance(each, Fixup))
    task = SimpleNamespace(request=SimpleNamespace(is_eager=False))
    connection.ensure_connection()
    was = connection.connection
    fixup.worker_fixup.on_task_postrun(task)
    fixup.worker_fixup.on_task_prerun(task)
    assert (connection.connection is was) is (connection.vendor == "sqlite")
    connection.ensure_connection()
    connection.errors_occurred = True
    fixup.worker_fixup.on_task_postrun(task)
    assert connection.connection is None


def test_every_worker_has_the_sweep_timer():
    assert SweepTimer in app.steps["worker"]


START = """
import sys
from console.runtime.worker import app
app.loader.init_worker()  # Celery does this before its first step
sys.exit("console.urls" in sys.modules)
"""


def test_a_worker_starts_without_loading_every_page():
    """Loading all pages would cost half a second at each start. `trainyard up` has run Django's checks before."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CELERY_")}
    assert subprocess.run([sys.executable, "-c", START], env=environment, timeout=120).returncode == 0


@pytest.mark.parametrize("wrong_s", [7200.0, -3600.0, -86400.0])
def test_messages_and_beat_go_by_trainyards_clock(monkeypatch, wrong_s):
    """Celery asks the machine's clock. Where it is wrong, each message would be too old, or none would be sent."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + wrong_s)
    assert abs((app.now() - timezone.now()).total_seconds()) < 5
    request = TimedRequest.__new__(TimedRequest)
    request.id, request._expires = "a message", timezone.now() + timedelta(seconds=10)
    assert not request.maybe_expire()
    request._expires = timezone.now() - timedelta(seconds=1)
    assert request.maybe_expire()
    revoked.discard("a message")
    assert symbol_by_name(app.Task.Request) is TimedRequest
