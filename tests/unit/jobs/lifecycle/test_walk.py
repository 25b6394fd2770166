"""One job from submit to the last log byte, with real rows and fake hosts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from agents.models import Host, HostStatus
from jobs import services
from jobs.host_sync import lost_hosts
from jobs.lifecycle.advance import advance
from jobs.logs import reader, verify
from jobs.models import GpuClaim, Job, Run, Transition
from jobs.rules.lifecycle.states import JobState, legal
from tests.unit.jobs.conftest import gang, pool_of, spec
from tests.unit.jobs.fake_hosts import settle

pytestmark = pytest.mark.django_db


def states(job):
    """The job's history: each step is legal and begins where the step before ended."""
    rows = list(Transition.objects.filter(job=job, subject="job"))
    for before, after in pairwise(rows):
        assert before.to_state == after.from_state
        assert legal(JobState(after.from_state), JobState(after.to_state))
    return [row.to_state for row in rows]


def now_of(job):
    job.refresh_from_db()
    return job


def test_a_job_walks_from_submit_to_its_last_byte(add_host, submit, control_plane):
    host = add_host()
    job = submit()
    (run,) = Run.objects.all()
    assert (job.state, run.phase, run.host_id) == ("PENDING", "created", host.row.pk)
    assert run.order["command"] == ["sh", "-c", "true"] and run.order["env"]["CLOUD_ML_JOB_ID"] == str(job.pk)

    settle(control_plane, host)
    assert now_of(job).state == "RUNNING" and job.started_at and host.started_runs == [run.pk]
    host.end(control_plane, run.pk, exit_code=0)
    assert now_of(job).state == "SUCCEEDED" and job.ended_at and job.error_code is None

    settle(control_plane, host)
    verify.verify_logs([run.pk], timezone.now())
    status = reader.status(run)
    assert (
        status.complete
        and status.matches
        and reader.read(run, 0, 100).data == f"hello from {run.pk}\n".encode()
    )
    settle(control_plane, host)
    run.refresh_from_db()
    assert run.forgotten_at and run.released_at and host.runs == {} and host.started_runs == [run.pk]
    assert states(job) == ["QUEUED", "PENDING", "RUNNING", "SUCCEEDED"]


def test_a_gang_runs_when_all_are_up_and_ends_with_its_primary(add_host, submit, control_plane):
    first, second = add_host("h1", cpus=2), add_host("h2", cpus=2)
    job = submit(gang(pool_of(), pool_of(count=3)))
    assert Run.objects.count() == 4
    first.reconcile(control_plane)
    assert now_of(job).state == "PENDING"
    settle(control_plane, first, second)
    assert now_of(job).state == "RUNNING"
    primary = Run.objects.get(replica__name="workerpool0-0")
    host = first if primary.host_id == first.row.pk else second
    host.end(control_plane, primary.pk, exit_code=0)
    assert now_of(job).state == "RUNNING" and job.outcome == "SUCCEEDED"
    settle(control_plane, first, second)
    assert now_of(job).state == "SUCCEEDED"
    assert not Run.objects.filter(released_at=None).exists()
    assert {fake_run.phase for each in (first, second) for fake_run in each.runs.values()} == {"closed"}


def test_every_replica_gets_the_cluster_variables(add_host, submit):
    add_host("h1", cpus=1), add_host("h2", cpus=1)
    submit(gang(pool_of(), pool_of()))
    orders = {run.replica.name: run for run in Run.objects.select_related("replica", "host")}
    addresses = {name: f"{run.host.address}:{run.port}" for name, run in orders.items()}
    for name, run in orders.items():
        env = run.order["env"]
        assert (
            addresses["workerpool0-0"].endswith(env["MASTER_PORT"]) and addresses[name] in env["CLUSTER_SPEC"]
        )
        assert env["WORLD_SIZE"] == "2"


def test_a_user_error_fails_the_job_with_the_exact_text_and_stops_the_others(add_host, submit, control_plane):
    host = add_host(cpus=4)
    job = submit(gang(pool_of(), pool_of(count=2)))
    settle(control_plane, host)
    worker = Run.objects.get(replica__name="workerpool1-1")
    host.end(control_plane, worker.pk, exit_code=7)
    settle(control_plane, host)
    assert now_of(job).state == "FAILED"
    expected = "The replica workerpool1-1 exited with a non-zero status of 7. Termination reason: Error."
    assert (job.error_code, job.error_message) == (3, expected)


@pytest.mark.parametrize("moment", ["queued", "placed", "running", "ended"])
def test_cancel_wins_at_any_moment(moment, add_host, submit, control_plane):
    host = add_host()
    job = submit(place=moment != "queued")
    if moment in ("running", "ended"):
        settle(control_plane, host)
    if moment == "ended":
        (run,) = host.runs.values()
        run.phase = "ended"
    services.cancel(job, "alice", timezone.now())
    state = now_of(job).state
    assert state == ("CANCELLED" if moment == "queued" else "CANCELLING")
    services.cancel(job, "bob", timezone.now())
    settle(control_plane, host)
    assert now_of(job).state == "CANCELLED" and job.cancel_requested_by == "alice"
    assert host.started_runs == [] or moment in ("running", "ended")
    assert not Run.objects.filter(released_at=None).exists()
    assert states(job)[-1] == "CANCELLED"


def test_an_unreachable_host_is_a_flag_and_frees_nothing(add_host, submit, control_plane):
    host = add_host(gpus=1)
    job = submit(spec(gpus=1))
    settle(control_plane, host)
    Host.objects.update(status=HostStatus.UNREACHABLE, status_since=timezone.now())
    control_plane.host_changed(host.row.pk)
    assert now_of(job).state == "RUNNING" and [flag["flag"] for flag in job.flags] == ["UNREACHABLE"]
    assert GpuClaim.objects.filter(released_at=None).count() == 1
    Host.objects.update(status=HostStatus.UP, status_since=timezone.now())
    control_plane.host_changed(host.row.pk)
    assert now_of(job).state == "RUNNING" and job.flags == []
    assert states(job) == ["QUEUED", "PENDING", "RUNNING"]


def test_a_cancelled_job_on_an_unreachable_host_ends_and_its_claim_stays(add_host, submit, control_plane):
    host = add_host(gpus=1)
    job = submit(spec(gpus=1))
    settle(control_plane, host)
    Host.objects.update(status=HostStatus.UNREACHABLE, status_since=timezone.now())
    services.cancel(job, "alice", timezone.now())
    advance([job.pk], Clock())
    assert now_of(job).state == "CANCELLED" and GpuClaim.objects.filter(released_at=None).count() == 1
    waiting = submit(spec(gpus=1))
    Host.objects.update(status=HostStatus.UP, status_since=timezone.now())
    settle(control_plane, host)
    assert not Run.objects.filter(job=job, released_at=None).exists()
    assert now_of(waiting).state == "RUNNING" and states(job)[-1] == "CANCELLED"


def test_a_lost_replica_comes_back_under_its_name_with_its_claims(add_host, submit, control_plane):
    host = add_host(gpus=1)
    job = submit(spec(gpus=1))
    settle(control_plane, host)
    old = Run.objects.get()
    host.end(control_plane, old.pk, exit_signal=9, exit_code=None)
    new = Run.objects.exclude(pk=old.pk).get()
    old.refresh_from_db()
    assert old.released_at and (new.port, new.gpu_uuids, new.number) == (old.port, old.gpu_uuids, 1)
    assert GpuClaim.objects.get(released_at=None).run_id == new.pk
    assert new.order["work_key"] == Run.objects.get(pk=old.pk).order["work_key"]
    settle(control_plane, host)
    host.end(control_plane, new.pk, exit_code=0)
    assert now_of(job).state == "SUCCEEDED" and host.started_runs == [old.pk, new.pk]


def test_a_transient_error_runs_the_whole_job_again(add_host, submit, control_plane):
    host = add_host()
    job = submit(gang(pool_of(), pool_of()))
    settle(control_plane, host)
    host.end(control_plane, Run.objects.get(replica__name="workerpool0-0").pk, exit_code=134)
    settle(control_plane, host)
    assert now_of(job).attempt == 2 and job.job_retries == 1 and job.error_message == ""
    assert now_of(job).state == "RUNNING" and len(host.started_runs) == 4
    host.end(control_plane, Run.objects.get(attempt=2, replica__name="workerpool0-0").pk, exit_code=0)
    settle(control_plane, host)
    assert now_of(job).state == "SUCCEEDED"
    assert "QUEUED" in states(job)[2:]


def test_a_host_that_was_set_up_anew_has_lost_its_runs(add_host, submit, control_plane):
    """The runner's directory is gone and the boot id is another one: that proves the runs closed. The old boot id would
    not."""
    host = add_host()
    job = submit()
    settle(control_plane, host)
    host.runs.clear()
    settle(control_plane, host)
    assert Run.objects.get().phase == "running" and now_of(job).state == "RUNNING"
    Host.objects.update(boot_id="boot-2")
    host.boot_id = "boot-2"
    host.reconcile(control_plane)
    settle(control_plane, host)
    old = Run.objects.get(number=0)
    assert (old.phase, old.why) == ("closed", "lost") and old.released_at
    assert host.started_runs[0] == old.pk and host.started_runs.count(old.pk) == 1
    assert Job.objects.get().state == "RUNNING" and Run.objects.get(number=1).phase == "running"
    assert lost_hosts.close_lost_runs([old.pk], timezone.now()) == set()
