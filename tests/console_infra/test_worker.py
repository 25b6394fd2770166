"""The worker looks by itself what is due: beat and its messages may be away."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from django.conf import settings
from django.utils import timezone

from console.worker import SweepTimer, app
from jobs import tasks
from jobs.models import Tick
from tests.harness.shell import wait_for


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(settings, "TRAINYARD", replace(settings.TRAINYARD, tick_s=0.02))


@pytest.mark.django_db(transaction=True)
def test_without_beat_the_worker_sweeps_by_its_own_timer_and_outlives_a_failure(quick, monkeypatch, caplog):
    """Failure mode 9: no message ever comes."""
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
    assert not timer.thread.is_alive() and set(calls) == {"sweep-timer"}
    assert "the sweep failed" in caplog.text


def test_every_worker_has_the_timer():
    assert SweepTimer in app.steps["worker"]


START = """
import sys
from console.worker import app
app.loader.init_worker()  # as Celery does before its first step
sys.exit("console.urls" in sys.modules)
"""


def test_a_worker_starts_without_reading_every_page():
    """Half a second of each start, and of each restart; `trainyard up` has made Django's checks before."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CELERY_")}
    assert subprocess.run([sys.executable, "-c", START], env=environment, timeout=120).returncode == 0
