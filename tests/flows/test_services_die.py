"""PostgreSQL and Redis die, a dispatcher is suspended past its lease, messages arrive twice and late: no harm."""

from __future__ import annotations

import random
import subprocess
import sys
import time

import pytest

from tests.flows.running_jobs import LongJob
from tests.harness.product import job_spec
from tests.harness.product.product import ROOT
from tests.harness.wait_and_processes import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shape():
    return "apart"


def owners(yard):
    """Return the name of the dispatcher that holds the lease, by host."""
    return {
        row["name"]: row["lease_owner"] for row in yard.query("SELECT name, lease_owner FROM agents_host")
    }


def is_shared_by_two(found):
    """A lease that is handed over belongs to nobody for a moment."""
    return all(found.values()) and len(set(found.values())) == 2


def test_a_dispatcher_is_suspended_past_its_lease_and_resumed(yard, client):
    """Failure mode 31. The other dispatcher takes over the hosts; the suspended one has no effect when it wakes."""
    job = LongJob(yard, replicas=3, name="two dispatchers").running()
    for replica in ("workerpool0-0", "workerpool1-0", "workerpool1-1"):
        job.grows(replica)
    wait_for(
        lambda: is_shared_by_two(owners(yard)),
        "the hosts to be shared by two dispatchers",
        dump=yard.tail,
    )
    asleep = yard.processes.of("dispatcher")[0]
    yard.processes.pause_one(asleep)
    mine = set(owners(yard).values())
    wait_for(
        lambda: len(set(owners(yard).values())) == 1, "one dispatcher to hold every lease", dump=yard.tail
    )
    awake = set(owners(yard).values())
    assert awake < mine
    for replica in ("workerpool0-0", "workerpool1-0", "workerpool1-1"):
        job.grows(replica)
    yard.processes.resume(asleep)
    more = [yard.submit(job_spec(["replica", "--seconds", "0.5"], name="after waking")) for _ in range(4)]
    for job_id in more:
        client.wait(job_id, "SUCCEEDED")
    job.succeeded()
    yard.check()
    assert len(job.starts()) == 3


def test_redis_and_postgres_die_under_a_running_job(yard, client):
    """Failure modes 8, 10, 11 and 12, with two more beats the whole time."""
    beats = [yard.start_beat(), yard.start_beat()]
    job = LongJob(yard, replicas=3, name="services die").running()
    yard.redis.flush()
    job.grows(what="the log to grow after FLUSHALL")
    yard.redis.kill()
    during = yard.submit(job_spec(["replica", "--seconds", "0.5"], name="without redis"), patience=60)
    client.wait(during, "SUCCEEDED")
    yard.redis.start()
    for _ in range(3):
        yard.redis.pause()
        time.sleep(random.uniform(0.2, 1.5))
        yard.redis.resume()
    job.grows(what="the log to grow after Redis stood still")
    for _ in range(3):
        yard.postgres.kill()
        time.sleep(random.uniform(0.1, 0.8))
        yard.postgres.start()
        after = yard.submit(job_spec(["replica", "--seconds", "0.2"], name="after postgres"), patience=60)
        client.wait(after, "SUCCEEDED", timeout=180)
    job.succeeded()
    yard.check()
    assert len(job.starts()) == 3
    for beat in beats:
        beat.kill()
        beat.wait()


REPLAY = """
import random, sys
from console.runtime.celery_app import app
words = sys.argv[1:]
jobs = [int(word) for word in words if word.isdigit()]
hosts = [int(word[1:]) for word in words if word.startswith("h")]
messages = [("jobs.tasks.advance", [jobs])] * 10 + [("jobs.tasks.schedule", [])] * 10 + [("jobs.tasks.sweep", [])] * 5
messages += [("jobs.tasks.advance", [[job]]) for job in jobs for _ in range(3)]
random.shuffle(messages)
for name, arguments in messages:
    app.send_task(name, args=arguments)
for _ in range(10):
    app.send_task("jobs.tasks.dispatch", args=[hosts], queue="dispatch")
"""


def test_messages_arrive_twice_and_late(yard, client):
    """Failure mode 32: every message of finished jobs and of a running one is sent again many times, shuffled."""
    over = [yard.submit(job_spec(["replica", "--seconds", "0.2"], name="over")) for _ in range(3)]
    for job_id in over:
        client.wait(job_id, "SUCCEEDED")
    job = LongJob(yard, name="replayed").running()
    before = yard.query("SELECT id, state, version FROM jobs_job ORDER BY id")
    hosts = [f"h{row['id']}" for row in yard.query("SELECT id FROM agents_host")]
    words = [sys.executable, "-c", REPLAY, *map(str, over), str(job.id), *hosts]
    environment = {**yard.environment(), "DJANGO_SETTINGS_MODULE": "console.settings"}
    subprocess.run(words, cwd=ROOT, env=environment, check=True, timeout=120)
    for name in ("default", "dispatch"):
        wait_for(lambda name=name: not int(yard.redis.cli("LLEN", name)), "the queue to be empty")
    job.grows()
    assert yard.query("SELECT id, state, version FROM jobs_job ORDER BY id") == before
    job.succeeded()
    yard.check()
    assert len(job.starts()) == 1
