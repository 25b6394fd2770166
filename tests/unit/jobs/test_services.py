"""Requests about jobs: a retried request is done once, and a refusal names the reason."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction
from django.utils import timezone

from agents.links.control_plane import Arrival, LogEnd
from agents.models import Host, HostStatus
from jobs import services
from jobs.logs import reader, segments, storage, verify
from jobs.models import Job, LogPiece, LogSegment, Project, Run, Transition
from jobs.rules.spec.parse import InvalidDocument
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import frame, settle


def test_the_same_request_is_the_same_job(submit, django_user_model, project):
    job = submit(request_id="once")
    assert submit(request_id="once").pk == job.pk != submit().pk
    for other in ({"document": spec("false")}, {"location": "elsewhere"}):
        with pytest.raises(services.Conflict, match=f"{job.pk} was made from another document"):
            submit(**other, request_id="once")
    elsewhere = Project.objects.create(name="elsewhere", created_at=timezone.now())
    alice = job.owner
    assert services.submit(elsewhere, alice, spec(), "", "once", timezone.now()).pk != job.pk
    Job.every.filter(pk=job.pk).update(deleted_at=timezone.now())
    with pytest.raises(services.Conflict, match="was deleted"):
        submit(request_id="once")
    bob = django_user_model.objects.create_user("bob")
    assert services.submit(project, bob, spec(), "", "once", timezone.now()).pk != job.pk
    assert job.owner_name == "alice" and Transition.objects.get(job=job, subject="job").actor == "alice"


@pytest.mark.parametrize("request_id", ["", "x" * 201, "a\0b", "line\nbreak"])
def test_a_request_id_that_cannot_be_kept_is_refused(request_id, submit):
    with pytest.raises(services.Refused) as refused:
        submit(request_id=request_id)
    assert refused.value.field == "request_id"


@pytest.mark.parametrize("document", [None, [], {}, {"displayName": "x"}, {"jobSpec": "\0"}, spec("\0")])
def test_an_invalid_document_leaves_no_row(document, submit, project, alice):
    with pytest.raises(InvalidDocument):
        services.submit(project, alice, document, "default", None, timezone.now())
    assert not Job.every.exists()


@pytest.mark.django_db(transaction=True)
def test_eight_simultaneous_submits_of_one_request_make_one_job(project, alice):
    jobs, barrier = [], threading.Barrier(8)

    def door():
        try:
            barrier.wait(30)
            with transaction.atomic():
                jobs.append(services.submit(project, alice, spec(), "default", "once", timezone.now()).pk)
        finally:
            connection.close()

    threads = [threading.Thread(target=door) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(jobs) == 8 and len(set(jobs)) == 1 == Job.objects.count()


def test_with_a_full_disk_nothing_is_accepted_before_it_half_exists(submit, monkeypatch):
    monkeypatch.setattr(storage, "is_disk_low", lambda: True)
    with pytest.raises(services.Unavailable):
        submit()
    assert not Job.every.exists() and reader.logs_paused()


def test_a_deleted_job_is_gone_but_its_history_is_kept(add_host, submit, control_plane, monkeypatch):
    monkeypatch.setattr(storage, "MB", 1)
    host = add_host()
    job = submit()
    with pytest.raises(services.Refused):
        services.delete(job, "alice", timezone.now())
    settle(control_plane, host)
    run = Run.objects.get()
    host.runs[run.pk].log = b"x" * 3000
    host.end(control_plane, run.pk, exit_code=0)
    host.reconcile(control_plane)
    services.delete(job, "alice", timezone.now())
    assert not Job.objects.filter(pk=job.pk).exists() and Job.every.get(pk=job.pk).deleted_by == "alice"
    assert Transition.objects.filter(job=job).exists() and not LogSegment.objects.exists()
    assert reader.read(run, 0, 10).data == b""
    settle(control_plane, host)
    assert host.runs == {}  # the host may forget the run, verified or not


def test_a_deletion_that_is_rolled_back_costs_no_byte(
    add_host, submit, control_plane, monkeypatch, django_capture_on_commit_callbacks
):
    monkeypatch.setattr(storage, "MB", 1)
    host = add_host()
    job = submit()
    settle(control_plane, host)
    run = Run.objects.get()
    host.runs[run.pk].log = b"x" * 3000
    host.end(control_plane, run.pk, exit_code=0)
    host.reconcile(control_plane)
    while segments.roll(run.pk):
        pass
    keys = list(LogSegment.objects.values_list("key", flat=True))
    assert keys and all(map(storage.store().exists, keys))
    printed = reader.read(run, 0, 9999).data
    with pytest.raises(KeyboardInterrupt), transaction.atomic():
        services.delete(job, "alice", timezone.now())
        raise KeyboardInterrupt
    assert reader.read(run, 0, 9999).data == printed
    with django_capture_on_commit_callbacks(execute=True):
        services.delete(job, "alice", timezone.now())
    assert not any(map(storage.store().exists, keys))
    verify.verify_logs(verify.due_for_verification(timezone.now()), timezone.now())
    run.refresh_from_db()
    assert (run.log_digest_here, run.prove_due_at) == ("", None), "what is not here any more is not proved"


def test_a_job_is_not_deleted_while_an_unreachable_host_may_run_it(add_host, submit, control_plane):
    host = add_host()
    job = submit()
    settle(control_plane, host)
    Host.objects.update(status=HostStatus.UNREACHABLE, status_since=timezone.now())
    services.cancel(job, "alice", timezone.now())
    job.refresh_from_db()
    assert job.state == "CANCELLED"
    with pytest.raises(services.Refused, match="does not answer"):
        services.delete(job, "alice", timezone.now())


def test_late_bytes_of_a_deleted_job_are_dropped(add_host, submit, control_plane):
    host = add_host()
    job = submit()
    settle(control_plane, host)
    (run,) = host.runs
    host.end(control_plane, run, exit_code=0)
    job.refresh_from_db()
    assert job.state == "SUCCEEDED"
    services.delete(job, "alice", timezone.now())
    assert not LogPiece.objects.exists()
    late = [Arrival(run, frame(Run.objects.get().log_stored, b"late")), Arrival(run, LogEnd(99, "sha256:x"))]
    taken = host.report(control_plane, late)
    assert taken.current and run not in taken.acks and not LogPiece.objects.exists()
    assert control_plane.wanted_runs(host.row.pk)[run].forget


def test_cancelling_an_ended_job_changes_nothing(add_host, submit, control_plane):
    host = add_host()
    job = submit()
    settle(control_plane, host)
    host.end(control_plane, Run.objects.get().pk, exit_code=0)
    before = Job.objects.values().get()
    services.cancel(job, "alice", timezone.now())
    assert Job.objects.values().get() == before and before["state"] == "SUCCEEDED"


def test_an_unknown_gpu_type_is_refused_with_the_types_that_exist(add_host, submit):
    add_host(gpus=1, kind="NVIDIA_GEFORCE_RTX_4090")
    add_host("elsewhere", gpus=1, location="lab", kind="NVIDIA_B300")
    for typed, near in (("rtx_4090", "Did you mean NVIDIA_GEFORCE_RTX_4090? "), ("zzz", "")):
        with pytest.raises(InvalidDocument) as refused:
            submit(spec(gpus=1, kind=typed))
        (violation,) = refused.value.violations
        assert violation.field == "job_spec.worker_pool_specs[0].machine_spec.accelerator_type"
        assert violation.description.endswith(f"{near}Hosts here have NVIDIA_GEFORCE_RTX_4090.")


def test_a_share_of_a_host_is_no_machine_type_to_complain_about(add_host, submit):
    add_host(gpus=1)
    with pytest.raises(services.Refused) as refused:
        submit(spec(gpus=2, machine="host"))
    assert refused.value.field.endswith("accelerator_type") and "host is" not in refused.value.message
