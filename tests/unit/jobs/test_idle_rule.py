"""Stalled jobs are flagged and go on; idle jobs are flagged, or cancelled with the reason, as their project chose."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from agents.infra.refusals import Refused
from agents.links.control_plane import Arrival, Sample
from jobs import idle_rule
from jobs.host_sync import intake
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.lifecycle.advance import advance
from jobs.models import AuditEntry, Project, Run, Transition
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import settle


@pytest.fixture
def scene(add_host, control_plane, submit):
    """A job on a GPU, and a function that samples what it uses at a minute."""
    host = add_host(gpus=1)
    job = submit(spec("sleep 9", gpus=1))
    settle(control_plane, host)
    run, start = Run.objects.get(job=job), timezone.now()

    def at(minutes, cpu=0.0, load=0):
        now = start + timedelta(minutes=minutes)
        what = Sample(cpu, 100, {"GPU-h1-0": (load, 10)}, 5)
        told = intake.take(host.row.pk, 7, [Arrival(run.pk, what)], now, UnreadableFrames())
        job.refresh_from_db()
        if told.jobs or (job.due_at and job.due_at <= now):
            advance([job.pk], Clock(now))
            job.refresh_from_db()
        return now

    def until(first, last, **does):
        for minute in range(first, last):
            now = at(minute, **does)
        return now

    job.until, job.host, job.control_plane = until, host, control_plane
    return job


def flags(job):
    return [flag["flag"] for flag in job.flags]


def test_a_stall_is_flagged_and_recorded_and_stops_nothing(scene):
    scene.until(0, 29)
    assert flags(scene) == []
    scene.until(29, 33)
    assert flags(scene) == ["STALLED"] and scene.state == "RUNNING"
    scene.until(33, 90)
    assert flags(scene) == ["STALLED"] and scene.state == "RUNNING"
    scene.until(90, 91, cpu=1.0)
    assert flags(scene) == []
    told = Transition.objects.filter(job=scene, kind="flag").values_list("from_state", "to_state")
    assert list(told) == [("", "STALLED"), ("STALLED", "")]


def test_a_project_without_a_rule_has_none(scene, django_assert_num_queries):
    now = scene.until(0, 100, cpu=1.0)
    with django_assert_num_queries(1):
        idle_rule.cancel_idle_jobs(now)
    scene.refresh_from_db()
    assert scene.state == "RUNNING" and flags(scene) == []


def test_a_rule_that_only_notifies_stops_nothing(scene, project):
    idle_rule.set_rule(project, 20, False, "alice", timezone.now())
    now = scene.until(0, 25, cpu=1.0)
    assert flags(scene) == ["IDLE"]
    idle_rule.cancel_idle_jobs(now)
    scene.refresh_from_db()
    assert scene.state == "RUNNING"


def test_a_rule_that_stops_cancels_with_the_reason_and_is_audited(scene, project):
    idle_rule.set_rule(project, 20, True, "alice", timezone.now())
    now = scene.until(0, 25, cpu=1.0)
    idle_rule.cancel_idle_jobs(now)
    scene.refresh_from_db()
    assert scene.state == "CANCELLING" and scene.cancel_requested_by == "idle rule of project default"
    settle(scene.control_plane, scene.host)
    scene.refresh_from_db()
    assert scene.state == "CANCELLED"
    assert scene.error_message.startswith(
        "The job was stopped by the idle rule of project default. All its GPUs"
    )
    line = Transition.objects.get(job=scene, subject="job", to_state="CANCELLED")
    assert line.actor == "idle rule of project default"
    [entry] = AuditEntry.objects.filter(what="project.idle_rule")
    assert (entry.actor, entry.before, entry.after) == ("alice", None, {"minutes": 20, "stops": True})


def test_a_job_that_became_active_since_is_not_cancelled(scene, project):
    idle_rule.set_rule(project, 20, True, "alice", timezone.now())
    now = scene.until(0, 25, cpu=1.0)
    assert flags(scene) == ["IDLE"]
    Run.objects.filter(job=scene).update(gpu_active_at=now)
    idle_rule.cancel_idle_jobs(now)
    scene.refresh_from_db()
    assert scene.state == "RUNNING" and scene.cancel_requested_at is None


def test_invalid_rules_are_refused_and_no_change_is_no_audit_entry(project):
    now = timezone.now()
    for minutes in (0, -1, 10**6):
        with pytest.raises(Refused):
            idle_rule.set_rule(project, minutes, True, "alice", now)
    for _ in range(2):
        idle_rule.set_rule(project, 5, True, "alice", now)
    idle_rule.set_rule(project, None, True, "alice", now)
    assert AuditEntry.objects.filter(what="project.idle_rule").count() == 2
    assert not Project.objects.get(pk=project.pk).idle_stops
