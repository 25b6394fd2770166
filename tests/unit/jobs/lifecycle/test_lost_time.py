"""After a restart of the machine with a wrong clock, a running job goes on for as long as its host says."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.infra import clock
from agents.infra.clock import Clock
from agents.links import host_status
from agents.links.link import Hello
from jobs.host_sync import facts
from jobs.lifecycle.advance import advance
from jobs.models import Run
from tests.unit.jobs.conftest import spec

BOOT = "boot-1"


@pytest.fixture
def lose_the_time():
    before = clock._offset.seconds, clock._offset.unsure_since
    yield lambda: clock.follow(before[0] + 7200.0, timezone.now() + timedelta(hours=2))
    clock.follow(*before)


def greeting(monotonic):
    """What a host greets with whose monotonic clock shows that."""
    message = {"v": 1, "boot_id": BOOT, "wall": 1e9, "mono": monotonic, "mark": 0}
    return Hello.of(message, clock.now().timestamp())


@pytest.mark.parametrize(("ran_s", "state"), [(600, "RUNNING"), (3605, "CANCELLING")])
def test_the_timeout_is_judged_by_the_hosts_monotonic_clock(add_host, submit, lose_the_time, ran_s, state):
    host = add_host().row
    job = submit({**spec(), "jobSpec": {**spec()["jobSpec"], "scheduling": {"timeout": "3600s"}}})
    [run] = Run.objects.filter(job=job)
    reported = facts.read_facts(
        {"phase": "running", "boot_id": BOOT, "mono_started": 5000.0, "started_at": 1e9}
    )
    for column in facts.fill_facts(run, reported, timezone.now()):
        Run.objects.filter(pk=run.pk).update(**{column: getattr(run, column)})
    advance([job.pk], Clock())
    job.refresh_from_db()
    assert job.state == "RUNNING"
    lose_the_time()
    advance([job.pk], Clock())
    job.refresh_from_db()
    assert job.state == "RUNNING", "the host has not answered yet"
    host_status.record_greeting(host.pk, 7, greeting(5000.0 + ran_s), timezone.now())
    advance([job.pk], Clock())
    job.refresh_from_db()
    assert job.state == state
