"""Restarts and retries wait in rows: a restart keeps its place, a retry gives it back, and the time is shown."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from agents.models import Host, HostStatus
from jobs import sweep
from jobs.lifecycle.advance import advance, advance_quietly
from jobs.maintenance.cordon_and_drain import declare_gone
from jobs.models import GpuClaim, Job, Run, Transition
from jobs.scheduling import scheduler
from tests.unit.jobs import fake_hosts
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import settle

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def unit(settings):
    settings.TRAINYARD = replace(settings.TRAINYARD, retry_wait_s=5.0)


def now_of(job):
    job.refresh_from_db()
    return job


def lose(host, control_plane, **end):
    """The newest run ends so, and what follows at once is done."""
    run = Run.objects.filter(host=host.row).latest("attempt", "number")
    settle(control_plane, host)
    host.end(control_plane, run.pk, **(end or {"exit_signal": 9}))
    settle(control_plane, host)
    run.refresh_from_db()
    return run


def test_the_first_restart_is_at_once_and_the_second_waits_with_its_claims(add_host, submit, control_plane):
    host = add_host(gpus=1)
    job = submit(spec(gpus=1))
    other = submit(spec(gpus=1))
    first = lose(host, control_plane)
    assert first.restart_at is None and Run.objects.count() == 2
    second = lose(host, control_plane)
    assert Run.objects.count() == 2 and not second.released_at
    assert now_of(job).due_at == second.restart_at
    assert timedelta(seconds=4) < second.restart_at - timezone.now() <= timedelta(seconds=5)
    assert [flag["text"] for flag in job.flags] == [
        f"Being restarted: workerpool0-0 (waits until {second.restart_at:%Y-%m-%d %H:%M:%S UTC})."
    ]
    told = Transition.objects.filter(job=job, subject="workerpool0-0").latest("pk")
    assert "restart 2 of 5 waits until" in told.cause and told.run == second.pk
    scheduler.schedule(timezone.now())
    assert now_of(other).state == "QUEUED" and GpuClaim.objects.get(released_at=None).run_id == second.pk
    advance([job.pk], Clock(second.restart_at - timedelta(seconds=1)))
    assert Run.objects.count() == 2
    sweep.advance_due(Clock(second.restart_at))
    settle(control_plane, host)
    assert Run.objects.latest("number").number == 2 and now_of(job).flags == []


def test_the_second_retry_gives_its_place_back_and_waits(add_host, submit, control_plane, monkeypatch):
    told = []
    monkeypatch.setattr(
        fake_hosts, "advance_quietly", lambda *given: told.append(advance_quietly(*given)) or told[-1]
    )
    host = add_host(gpus=1)
    job = submit(spec(gpus=1))
    lose(host, control_plane, exit_code=134)
    assert (now_of(job).state, job.attempt, job.rests_until) == ("RUNNING", 2, None)
    lose(host, control_plane, exit_code=134)
    assert (now_of(job).state, job.attempt) == ("QUEUED", 3)
    assert timedelta(seconds=55) < job.rests_until - timezone.now() <= timedelta(seconds=60)
    assert [each.retries_at for each in told if each.retries_at][-1] == {job.pk: job.rests_until}
    assert job.reason.endswith(f"retry 2 of 3. It waits until {job.rests_until:%Y-%m-%d %H:%M:%S UTC}.")
    other = submit(spec(gpus=1))
    assert other.state == "PENDING", "the place is free meanwhile"
    settle(control_plane, host)
    host.end(control_plane, Run.objects.get(job=other).pk, exit_code=0)
    scheduler.schedule_unasked(job.rests_until - timedelta(seconds=1))
    assert now_of(job).state == "QUEUED"
    scheduler.schedule_unasked(job.rests_until)
    assert (now_of(job).state, job.rests_until, job.reason) == ("PENDING", None, "")


def test_a_replica_whose_restart_waits_leaves_a_host_that_is_declared_gone(add_host, submit, control_plane):
    host = add_host("h1")
    job = submit()
    lose(host, control_plane)
    waiting = lose(host, control_plane)
    assert waiting.restart_at and waiting.host_id == host.row.pk
    spare = add_host("h2")
    Host.objects.filter(pk=host.row.pk).update(status=HostStatus.UNREACHABLE, status_since=timezone.now())
    declare_gone(Host.objects.get(pk=host.row.pk), "h1", "alice", timezone.now())
    scheduler.schedule(timezone.now())
    settle(control_plane, spare)
    newest = Run.objects.latest("number")
    assert (newest.host_id, newest.phase, now_of(job).state) == (spare.row.pk, "running", "RUNNING")
    waiting.refresh_from_db()
    assert waiting.released_at and waiting.proved_at, "the host owes no proof"


def test_a_job_that_is_cancelled_while_it_waits_is_over_at_once(add_host, submit, control_plane):
    host = add_host()
    job = submit()
    lose(host, control_plane)
    lose(host, control_plane)
    now = timezone.now()
    Job.every.filter(pk=job.pk).update(cancel_requested_at=now, cancel_requested_by="alice", due_at=now)
    advance([job.pk], Clock())
    assert now_of(job).state == "CANCELLED" and not Run.objects.filter(released_at=None)
