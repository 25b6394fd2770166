"""Checks of hosts run beside Celery's pool: an unreachable host delays no decision."""

from __future__ import annotations

import threading

from jobs import tasks
from jobs.maintenance import checks
from tests.harness.wait_and_processes import wait_for


def test_hosts_that_do_not_answer_delay_no_check_and_none_is_forgotten(monkeypatch):
    answer, begun, done = threading.Event(), [], []

    def check(host_id):
        begun.append(host_id)
        assert answer.wait(60)
        done.append(host_id)
        if host_id == 3:
            raise RuntimeError("a check that breaks is not the end of its thread")

    monkeypatch.setattr(checks, "check", check)
    monkeypatch.setattr(checks, "checker", checks.Checker())
    for host_id in [*range(20), *range(20)]:
        tasks.enrol(host_id)  # returns at once, or this test would hang here
    wait_for(lambda: len(begun) == checks.THREADS, "as many checks as there are threads")
    tasks.enrol(begun[0])  # a new hint about a host whose check has begun
    answer.set()
    wait_for(lambda: len(done) >= 21, "all to be checked")
    assert sorted(set(done)) == list(range(20))
    assert done.count(begun[0]) >= 2
