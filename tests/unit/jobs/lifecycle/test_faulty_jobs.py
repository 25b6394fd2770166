"""Jobs that cannot be handled by a fault of Trainyard are set aside, logged once, and delay no other job."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from jobs import services
from jobs.lifecycle import claims, faulty_jobs
from jobs.lifecycle.advance import advance
from jobs.models import Job
from jobs.scheduling import scheduler
from tests.unit.jobs.conftest import spec


@pytest.fixture
def poison(monkeypatch):
    """Why jobs of this name cannot be placed ("": they can), and how often it was tried."""
    honest, why = claims.first_runs, {"words": "a fault of ours", "tries": 0}

    def seat(job, *rest):
        if job.display_name == "poison" and why["words"]:
            why["tries"] += 1
            raise RuntimeError(why["words"])
        return honest(job, *rest)

    monkeypatch.setattr(claims, "first_runs", seat)
    return why


def state_of(job):
    job.refresh_from_db()
    return job.state


def test_a_faulty_job_is_set_aside_longer_each_time_and_logged_once(add_host, submit, poison, caplog):
    add_host(cpus=1)
    job, other = submit({**spec(), "displayName": "poison"}, place=False), submit(spec(), place=False)
    now = timezone.now()
    scheduler.schedule(now)
    assert (state_of(job), job.reason) == ("QUEUED", scheduler.OUR_FAULT.text)
    assert state_of(other) == "PENDING", "the place that it could not take is given away"
    assert minutes(job.rests_until - now) == 1
    add_host("h2")
    tried = poison["tries"]
    for seconds in (1, 30, 59):
        scheduler.schedule_unasked(now + timedelta(seconds=seconds))
    assert poison["tries"] == tried, "it is not tried while it is set aside"
    for rest in (2, 4, 8):
        scheduler.schedule_unasked(at := job.rests_until)
        assert state_of(job) == "QUEUED" and minutes(job.rests_until - at) == rest
    assert len(told(caplog)) == 1 and "a fault of ours" in caplog.text
    poison["words"] = "another fault"
    scheduler.schedule_unasked(at := job.rests_until)
    assert state_of(job) == "QUEUED" and minutes(job.rests_until - at) == 1 and len(told(caplog)) == 2


def minutes(of):
    return round(of.total_seconds() / 60)


def told(caplog):
    return [each for each in caplog.records if "cannot be given its place" in each.message]


def test_a_faulty_job_starts_when_the_fault_is_gone(add_host, submit, poison):
    add_host()
    job = submit({**spec(), "displayName": "poison"})
    poison["words"] = ""
    scheduler.schedule_unasked(job.rests_until - timedelta(seconds=1))
    assert state_of(job) == "QUEUED"
    scheduler.schedule_unasked(job.rests_until)
    assert (state_of(job), job.fault, job.rests_until, job.reason) == ("PENDING", None, None, "")


def test_a_faulty_job_can_be_cancelled_while_it_is_set_aside(add_host, submit, poison):
    add_host()
    job = submit({**spec(), "displayName": "poison"})
    services.cancel(job, "alice", timezone.now())
    advance([job.pk], Clock())
    assert state_of(job) == "CANCELLED"


@pytest.mark.parametrize("broken", [False, True])
def test_a_pass_ends_even_if_a_faulty_job_cannot_be_set_aside(add_host, submit, poison, monkeypatch, broken):
    add_host(cpus=2)
    job, other = submit({**spec(), "displayName": "poison"}, place=False), submit(spec(), place=False)
    if broken:
        Job.objects.filter(pk=job.pk).update(spec={"workerPoolSpecs": "none"})
    offered = []

    def no_rest(each, *rest):
        offered.append(each.pk)
        assert len(offered) < 9, "it goes on and on"

    monkeypatch.setattr(faulty_jobs, "set_aside", no_rest)
    scheduler.schedule(timezone.now())
    assert state_of(other) == "PENDING" and state_of(job) == "QUEUED" and 0 < len(offered) <= 3


@pytest.mark.parametrize("resource_request", [None, ""])
def test_a_job_that_cannot_be_read_delays_no_other_job(add_host, submit, caplog, resource_request):
    add_host(cpus=2)
    broken = submit(place=False)
    Job.objects.filter(pk=broken.pk).update(spec={"workerPoolSpecs": "none"})
    if resource_request is not None:
        Job.objects.filter(pk=broken.pk).update(resource_request=resource_request)
    assert [submit().state for _ in range(2)] == ["PENDING"] * 2 and state_of(broken) == "QUEUED"
    assert len([each for each in caplog.records if "cannot be read" in each.message]) == 1
