"""A web process after its database was away: it serves again as soon as the database does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness import new_database
from tests.harness.services import Postgres

# How long after the database is back all is served again.
SERVED_AFTER_S = 2.0
# While the database is away the pool of connections tries again after 1, 2, 4, 8 s: here it would come 7 s late.
AWAY_S = 8.0
SIZE = 6
ROOT = Path(__file__).resolve().parents[4]
# Asks the database in threads, as web does: each question takes a connection from the pool, and gives it back.
PROGRAM = f"""
import sys, threading, time
import django
django.setup()
from django.db import Error, connection
from agents.clock_keeper import ClockKeeper


def ask(seconds=0.0):
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(%s)", [seconds])
        return True
    except Error:
        return False
    finally:
        connection.close()


def at_once(seconds):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(ask(seconds))) for _ in range({SIZE})]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers.count(False)


def busily():
    while True:
        asked = time.monotonic()
        answered = ask()
        sys.stdout.write(f"{{asked}} {{time.monotonic()}} {{answered}}\\n")
        sys.stdout.flush()
        time.sleep(0.05)


ClockKeeper().start()
print(at_once(0.5), flush=True)
sys.stdin.readline()
print(at_once(0.5), flush=True)
for _ in range(3):
    threading.Thread(target=busily, daemon=True).start()
sys.stdin.readline()
"""


@pytest.fixture
def server():
    found = Postgres().start()
    yield found
    found.close()


@pytest.fixture
def process(server, tmp_path):
    environment = {
        **os.environ,
        "DATABASE_URL": server.create_database("outage"),
        "TRAINYARD_DATA": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "console.settings",
    }
    run = {"cwd": ROOT, "env": environment, "text": True}
    new_database.fill_postgres(server, "outage")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], **pipes, **run) as found:
        yield found
        found.kill()


def test_all_is_served_again_two_seconds_after_the_database_is_back(server, process):
    assert process.stdout.readline() == "0\n"
    server.kill()
    server.start()
    time.sleep(SERVED_AFTER_S + 0.5)
    process.stdin.write("ask\n")
    process.stdin.flush()
    assert process.stdout.readline() == "0\n", (
        "connections from before the outage, which nobody used meanwhile"
    )
    assert process.stdout.readline().endswith("True\n")
    server.kill()
    time.sleep(AWAY_S)
    server.start()
    back = time.monotonic()
    waits, failures = [], []
    asked = back
    while asked < back + 3 * SERVED_AFTER_S:
        asked, answered, good = process.stdout.readline().split()
        asked, waited = float(asked), float(answered) - max(float(asked), back)
        if good == "True" and waited > 0:
            waits.append(waited)
        elif asked > back + SERVED_AFTER_S:
            failures.append(asked - back)
    assert len(waits) > 100 and max(waits) < SERVED_AFTER_S and failures == [], (max(waits), failures)
