"""Web whose database does not answer at its start: nothing is dated by this machine's clock, which may be wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.db import OperationalError
from django.test import Client

from agents.infra import clock
from console.runtime import database_threads
from jobs.models import Job
from tests.harness import new_database
from tests.harness.services import Postgres
from tests.unit.console.api.conftest import JOBS, script
from tests.unit.console.views.conftest import cast, project
from tests.unit.console.views.example_rows import document

__all__ = ["cast", "project", "script"]

# How long after the database answers the time is right.
KNOWN_AFTER_S = 1.0
WRONG_S = 7200.0
ROOT = Path(__file__).resolve().parents[4]
# A web process's clock, on a machine whose own clock is wrong. It prints when the time is known.
PROGRAM = f"""
import sys, time
import django
django.setup()
from agents import clock_keeper
from agents.infra import clock
true = time.time
clock.date_clock = lambda: true() + {WRONG_S}
clock._offset.seconds += {WRONG_S}
clock_keeper.START_S = 0.2
clock_keeper.ClockKeeper().start()
print("started", clock.is_known(), flush=True)
while not clock.is_known():
    time.sleep(0.01)
print("known", time.monotonic(), clock.now().timestamp() - true(), flush=True)
"""


@pytest.fixture
def unknown():
    before = clock._offset.seconds, clock._offset.unsure_since
    clock.distrust()
    yield
    clock.follow(*before)


@pytest.mark.django_db
def test_while_the_time_is_not_known_nothing_is_written_and_all_is_answered(script, cast):
    bob, browser = script("bob"), Client()
    browser.force_login(cast.bob)
    before = clock._offset.seconds, clock._offset.unsure_since
    clock.distrust()
    try:
        answer = bob.post(JOBS, document(), content_type="application/json")
        assert answer.status_code == 503 and answer.json()["error"]["status"] == "UNAVAILABLE"
        for address in ("/", "/jobs/", "/healthz"):
            answer = browser.get(address)
            assert answer.status_code == 503 and answer.headers["Retry-After"] == "5"
        assert not Job.objects.exists()
    finally:
        clock.follow(*before)
    assert bob.post(JOBS, document(), content_type="application/json").status_code == 200


def test_no_socket_is_admitted_while_the_time_is_not_known(unknown):
    with pytest.raises(OperationalError):
        database_threads._run(lambda: None)


def test_the_time_is_right_within_a_second_after_the_database_answers(tmp_path):
    server = Postgres().start()
    try:
        environment = {
            **os.environ,
            "DATABASE_URL": server.create_database("clock"),
            "TRAINYARD_DATA": str(tmp_path),
        }
        environment["DJANGO_SETTINGS_MODULE"] = "console.settings"
        run = {"cwd": ROOT, "env": environment, "text": True}
        new_database.fill_postgres(server, "clock")
        server.kill()
        with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, **run) as process:
            try:
                assert process.stdout.readline() == "started False\n"
                time.sleep(5.0)  # the pool of connections has given up and waits
                server.start()
                answers_at = time.monotonic()
                word, known_at, ahead_s = process.stdout.readline().split()
            finally:
                process.kill()
    finally:
        server.close()
    assert word == "known" and abs(float(ahead_s)) < 2.0, "by the database's clock"
    assert float(known_at) - answers_at < KNOWN_AFTER_S, float(known_at) - answers_at
