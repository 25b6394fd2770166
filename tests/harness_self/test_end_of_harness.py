"""Processes of a harness end with it, however it ends, and the next harness clears its directories."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

from tests.harness import leftovers
from tests.harness.services import Postgres, Redis
from tests.harness.wait_and_processes import children_of, process_alive, wait_for

HARNESS = """
import signal
from tests.harness.hosts import Fleet
from tests.harness.proxies import Haproxy, Nginx
from tests.harness.services import Postgres, Redis
fleet = Fleet(1).boot()
host = fleet[0]
daemons = [each.start() for each in (Postgres(), Redis(), Nginx(9), Haproxy(9))]
pids = [host.pid if fleet.tier == "namespaces" else host.relay.pid] + [each.process.pid for each in daemons]
print(*pids, fleet.dir, *[each.dir for each in daemons], flush=True)
signal.pause()
"""


def test_a_killed_harness_takes_its_processes_along():
    harness = subprocess.Popen([sys.executable, "-c", HARNESS], stdout=subprocess.PIPE, text=True)
    with harness.stdout as output:
        words = output.readline().split()
        pids, directories = [int(word) for word in words[:5]], words[5:]
        assert all(process_alive(pid) for pid in pids)
        pids += [
            child for pid in pids for child in children_of(pid)
        ]  # an nginx of several processes has some
        harness.send_signal(signal.SIGKILL)
        harness.wait()
    wait_for(lambda: not any(process_alive(pid) for pid in pids), "the host and all servers to end")
    leftovers.clear()
    assert [path for path in directories if pathlib.Path(path).exists()] == []


def test_what_belongs_to_a_living_harness_is_left_alone():
    directory = leftovers.scratch("mine")
    sleeper = subprocess.Popen(["sleep", "1000"], env=leftovers.owned_environment())
    try:
        leftovers.clear()
        assert directory.exists() and sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()
        directory.rmdir()


def test_postgres_and_redis_come_back_after_a_kill():
    """Also with a process of PostgreSQL that could not notice by itself that the server is gone."""
    postgres, redis = Postgres(), Redis()
    try:
        postgres.start()
        postgres.create_database("yard")
        postgres.sql("CREATE TABLE kept AS SELECT 7 AS n", "yard")
        os.kill(children_of(postgres.process.pid)[0], signal.SIGSTOP)
        postgres.kill()
        assert postgres.start().sql("SELECT n FROM kept", "yard") == [["7"]]
        redis.start()
        redis.kill()
        assert redis.start().cli("PING") == "PONG\n"
    finally:
        postgres.close()
        redis.close()
