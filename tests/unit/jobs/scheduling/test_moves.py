"""Hosts are drained under running jobs: replicas keep their names, no restart counts, nothing stops in vain."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from agents.infra.refusals import Refused
from agents.models import Host, HostEvent, HostStatus
from jobs import services
from jobs.lifecycle.advance import advance
from jobs.maintenance import cordon_and_drain
from jobs.models import GpuClaim, HostMaintenance, Job, Run, Transition
from jobs.scheduling import scheduler
from tests.unit.jobs.conftest import gang, pool_of, spec
from tests.unit.jobs.fake_hosts import settle


def drain(host, minutes=None, force=False, message="new disk"):
    until = timezone.now() + timedelta(minutes=minutes) if minutes else None
    cordon_and_drain.drain(host.row, message, until, force, "root", timezone.now())


def later(control_plane, minutes, *hosts):
    scheduler.schedule_quietly(timezone.now() + timedelta(minutes=minutes))
    settle(control_plane, *hosts)


def look(control_plane, *hosts):
    scheduler.schedule_quietly(timezone.now())
    settle(control_plane, *hosts)


def places(job):
    """The host, number and phase of each replica's latest run."""
    rows = (
        Run.objects.filter(job=job, held=False)
        .select_related("host", "replica")
        .order_by("attempt", "number")
    )
    return {run.replica.name: (run.host.name, run.number, run.phase) for run in rows}


def held(host):
    return Run.objects.filter(host=host.row, released_at=None).count()


def test_a_gang_moves_off_one_host_under_its_names(control_plane, add_host, submit):
    one, two = add_host("one", gpus=2), add_host("two", gpus=2)
    job = submit(gang(pool_of(gpus=2), pool_of(gpus=2)))
    settle(control_plane, one, two)
    three = add_host("three", gpus=2)
    leaves = "one" if places(job)["workerpool1-0"][0] == "one" else "two"
    [leaving, stays] = [one, two] if leaves == "one" else [two, one]
    drain(leaving)
    look(control_plane, one, two, three)
    job.refresh_from_db()
    assert job.state == "RUNNING" and job.attempt == 1 and job.job_retries == 0
    assert places(job) == {
        "workerpool0-0": (stays.row.name, 1, "running"),
        "workerpool1-0": ("three", 1, "running"),
    }
    assert not job.replicas.exclude(restarts=0).exists()
    # All replicas have the same new cluster variables.
    specs = [json.loads(Run.objects.get(pk=run).order["env"]["CLUSTER_SPEC"]) for run in newest(job)]
    assert specs[0]["cluster"] == specs[1]["cluster"]
    [moved] = specs[0]["cluster"]["workerpool1"]
    assert moved.startswith("three.example:")
    assert held(leaving) == 0 and held(stays) == held(three) == 1
    assert GpuClaim.objects.filter(released_at=None).count() == 4
    kinds = dict(HostEvent.objects.filter(host=leaving.row).values_list("kind", "text"))
    assert kinds["drained"] == "Nothing runs here any more."
    assert set(Transition.objects.filter(job=job, kind="drain").values_list("subject", flat=True)) == {
        "workerpool0-0",
        "workerpool1-0",
    }


def newest(job):
    rows = Run.objects.filter(job=job).order_by("number")
    return list({run.replica_id: run.pk for run in rows}.values())


def test_without_capacity_the_job_goes_on_and_says_why_until_there_is_capacity(
    control_plane, add_host, submit
):
    one = add_host("one", gpus=2)
    job = submit(spec(gpus=2))
    settle(control_plane, one)
    drain(one)
    look(control_plane, one)
    job.refresh_from_db()
    assert places(job) == {"workerpool0-0": ("one", 0, "running")}
    assert job.reason.startswith("Cannot leave one yet. Needs 1 x 2 NVIDIA_L4")
    advance([job.pk], Clock())
    job.refresh_from_db()
    [flag] = job.flags
    assert (flag["flag"], flag["text"]) == ("MAINTENANCE", "one is being drained by root: new disk.")
    two = add_host("two", gpus=2)
    look(control_plane, one, two)
    job.refresh_from_db()
    assert places(job) == {"workerpool0-0": ("two", 1, "running")}
    assert not job.reason and not job.replicas.exclude(restarts=0).exists()


@pytest.mark.parametrize("force", [True, False])
def test_at_the_deadline_only_a_forced_drain_sends_the_job_back_to_the_queue(
    control_plane, add_host, submit, force
):
    one = add_host("one", gpus=2)
    job = submit(spec(gpus=2))
    settle(control_plane, one)
    drain(one, minutes=5, force=force)
    look(control_plane, one)
    assert places(job)["workerpool0-0"] == ("one", 0, "running")
    later(control_plane, 6, one)
    job.refresh_from_db()
    if not force:
        assert (job.state, job.attempt) == ("RUNNING", 1) and "Cannot leave one" in job.reason
        return
    assert (job.state, job.attempt, job.job_retries, job.preempted_by) == ("QUEUED", 2, 0, "")
    assert held(one) == 0
    why = Transition.objects.get(job=job, subject="job", to_state="QUEUED", from_state="RUNNING")
    assert why.kind == "preempt" and "one is being drained by root until" in why.cause
    cordon_and_drain.uncordon(one.row, "root", timezone.now())
    look(control_plane, one)
    job.refresh_from_db()
    assert job.state == "RUNNING" and places(job)["workerpool0-0"] == ("one", 0, "running")


def test_a_cancel_in_the_middle_of_a_move_leaves_nothing_held_anywhere(control_plane, add_host, submit):
    one, two = add_host("one", gpus=2), add_host("two", gpus=0)
    job = submit(spec(gpus=2))
    settle(control_plane, one)
    two = add_host("three", gpus=2)
    drain(one)
    scheduler.schedule_quietly(timezone.now())  # places are held; no host has the order to stop yet
    assert held(one) == held(two) == 1
    two.reconcile(control_plane)
    assert two.started_runs == [], "a held run is not started"
    services.cancel(job, "alice", timezone.now())
    settle(control_plane, one, two)
    job.refresh_from_db()
    assert job.state == "CANCELLED" and held(one) == held(two) == 0
    assert not GpuClaim.objects.filter(released_at=None).exists()
    assert two.started_runs == [], "nothing was ever started at the new place"


def test_a_job_with_an_unreachable_peer_is_not_stopped_for_a_move(control_plane, add_host, submit):
    one, two, three = add_host("one", gpus=2), add_host("two", gpus=2), add_host("three", gpus=0)
    job = submit(gang(pool_of(gpus=2), pool_of(gpus=2)))
    settle(control_plane, one, two)
    add_host("four", gpus=2)
    type(one.row).every.filter(pk=two.row.pk).update(status=HostStatus.UNREACHABLE)
    drain(one)
    scheduler.schedule_quietly(timezone.now())
    job.refresh_from_db()
    assert (
        "two does not answer" in job.reason and not Run.objects.filter(stop_wanted_at__isnull=False).exists()
    )
    assert not Run.objects.filter(held=True).exists() and held(three) == 0


def test_a_drain_that_is_undone_in_time_changes_nothing(control_plane, add_host, submit):
    one = add_host("one", gpus=2)
    job = submit(spec(gpus=2))
    settle(control_plane, one)
    drain(one)
    look(control_plane, one)
    cordon_and_drain.uncordon(one.row, "root", timezone.now())
    add_host("two", gpus=2)
    look(control_plane, one)
    assert places(job) == {"workerpool0-0": ("one", 0, "running")}
    job.refresh_from_db()
    assert not job.reason


@pytest.mark.parametrize(("minutes", "force"), [(-5, False), (None, True)])
def test_invalid_drain_options_are_refused(add_host, minutes, force):
    one = add_host("one")
    with pytest.raises(Refused):
        drain(one, minutes, force)
    assert not HostMaintenance.objects.exists()


def test_moving_twice_in_a_row_never_counts(control_plane, add_host, submit):
    one, two = add_host("one", gpus=2), add_host("two", gpus=0)
    job = submit(spec(gpus=2))
    settle(control_plane, one, two)
    here = one
    for number in range(1, 8):
        there = add_host(f"next-{number}", gpus=2)
        drain(here)
        look(control_plane, here, there)
        assert places(job) == {"workerpool0-0": (there.row.name, number, "running")}
        here = there
    job.refresh_from_db()
    assert (job.state, job.attempt, Job.objects.get().replicas.get().restarts) == ("RUNNING", 1, 0)


def test_a_held_run_that_is_lost_before_it_starts_leaves_its_number_unused(control_plane, add_host, submit):
    """The new host is declared gone while the old run still stops: the replica starts again where it was."""
    one, two = add_host("one", gpus=2), add_host("two", gpus=0)
    job = submit(spec(gpus=2))
    settle(control_plane, one, two)
    three = add_host("three", gpus=2)
    drain(one)
    scheduler.schedule_quietly(timezone.now())
    assert held(three) == 1
    Host.objects.filter(pk=three.row.pk).update(status=HostStatus.UNREACHABLE, status_since=timezone.now())
    cordon_and_drain.declare_gone(three.row, "three", "root", timezone.now())
    cordon_and_drain.uncordon(one.row, "root", timezone.now())
    settle(control_plane, one, two)
    job.refresh_from_db()
    assert places(job) == {"workerpool0-0": ("one", 2, "running")} and one.started_runs[1:] == [
        newest(job)[0]
    ]
    assert (job.state, job.attempt, job.replicas.get().restarts) == ("RUNNING", 1, 0)
    assert GpuClaim.objects.filter(released_at=None).count() == 2
