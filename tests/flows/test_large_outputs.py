"""A gigabyte that a job has written is stored whole, whoever is killed on the way. Its hosts have larger disks."""

from __future__ import annotations

import time

import pytest

from tests.flows.test_outputs import is_whole_and_once, write_large
from tests.harness.hosts import Fleet
from tests.harness.product import Product
from tests.harness.wait_and_processes import wait_for

pytestmark = [pytest.mark.needs_namespaces, pytest.mark.exhaustive]
SIZE_MB, BEFORE_A_KILL_MB = 1000, 100


@pytest.fixture(scope="module")
def yard():
    with Fleet(2, disk_mb=3000) as fleet, Product() as product:
        yield product.with_admin().with_hosts(fleet)


def test_a_gigabyte_is_stored_whole_while_each_process_is_killed(yard):
    """The console, the worker, the dispatcher, and then all of them, each when a part of the file has come."""
    job = write_large(yard, SIZE_MB)
    began, come = time.monotonic(), 0
    for role in ("web", "worker", "dispatcher"):
        come = coming(yard, job, come)
        tell(f"{role} is killed", began, come)
        old = yard.processes.kill(role)
        yard.processes.wait_for_new(role, old)
    come = coming(yard, job, come)
    tell("all are killed", began, come)
    yard.kill()
    yard.start()
    tell("the file comes again", began, coming(yard, job, come))
    is_whole_and_once(yard, job, SIZE_MB)
    tell("all is stored and compared", began, SIZE_MB << 20)


def coming(yard, job, before):
    """How much of the file has come, when it is enough, not all, and not what was noted before the last kill."""

    def enough():
        rows = yard.query(f"SELECT moving_bytes FROM jobs_hostoutputs WHERE job_id = {job}")
        found = max((row["moving_bytes"] for row in rows), default=0)
        return found if found >= BEFORE_A_KILL_MB << 20 and found != before else None

    found = wait_for(enough, "a part of the file to come", 300, dump=yard.tail)
    assert found < SIZE_MB << 20, "it is not all there yet"
    return found


def tell(what, began, size):
    print(f"{time.monotonic() - began:.1f} s: {what}, {size >> 20} MB have come")
