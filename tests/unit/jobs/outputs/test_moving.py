"""What jobs write is stored whole, once and for good, and is there again where the job goes on."""

from __future__ import annotations

import os

import pytest
from django.utils import timezone

from agents.infra.refusals import Refused
from agents.models import Host, HostStatus
from agents.ssh.outputs import OutputsBroken, OutputsConversation
from jobs import services
from jobs.artifacts import buckets, objects
from jobs.host_sync import wanted
from jobs.logs import verify
from jobs.maintenance import cordon_and_drain
from jobs.models import (
    Bucket,
    HostOutputs,
    Job,
    OutputFile,
    OutputStage,
    Project,
    Quota,
    Run,
    StoredObject,
    Transition,
)
from jobs.outputs import due, moving, uploading
from jobs.rules.lifecycle.states import JobState
from jobs.wake import hints
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import settle
from tests.unit.jobs.outputs.conftest import PipeChannel, grow_old, look

pytestmark = pytest.mark.django_db(transaction=True)

MODEL = os.urandom(3_000_000)


@pytest.fixture
def host(add_files):
    return add_files()


def stored(job):
    """Every object of the job's bucket, by name."""
    return {
        row.name: b"".join(objects.open_object(row))
        for row in StoredObject.objects.filter(bucket__project=job.project)
    }


def end(control_plane, host, job, **exit):
    for run in Run.objects.filter(job=job, host=host.row).exclude(phase="closed"):
        host.fake.end(control_plane, run.pk, **(exit or {"exit_code": 0}))
    settle(control_plane, host.fake)
    job.refresh_from_db()


def test_a_job_gets_its_bucket_and_its_order_names_the_directories(begin, host):
    job = begin(host, command="train --data /gcs/other/x --out gs://bucket-1/more")
    assert Bucket.objects.get().name == "bucket-1"
    order = Run.objects.get().order["outputs"]
    assert order["key"] == str(job.pk) and order["buckets"] == {"bucket-1": ""}, (
        "the other bucket is none of ours"
    )
    assert order["make"] == ["bucket-1/run/model", "bucket-1/run/checkpoints", "bucket-1/run/logs"]
    row = host.outputs(job)
    assert row.filled_at is not None, "there is nothing to put there, so nothing waits"
    assert row.addresses == [["bucket-1", "more"], ["bucket-1", "run"]]


def test_the_end_of_a_run_that_wrote_outputs_is_told_to_a_worker(
    begin, host, submit, control_plane, monkeypatch
):
    told = []
    monkeypatch.setattr(hints, "outputs", lambda: told.append(True))
    job = begin(host)
    assert not told
    end(control_plane, host, job)
    assert told == [True]
    other = submit()
    settle(control_plane, host.fake)
    end(control_plane, host, other)
    assert other.state == JobState.SUCCEEDED and told == [True], "this one wrote none"


def test_a_job_without_addresses_has_no_outputs(submit, host, control_plane):
    submit()
    settle(control_plane, host.fake)
    assert not HostOutputs.objects.exists() and "outputs" not in Run.objects.get().order


def test_files_are_stored_when_they_are_still_and_again_when_they_change(begin, host):
    job = begin(host)
    host.write(job, "bucket-1/run/checkpoints/step-1.pt", MODEL)
    look()
    assert stored(job) == {}, "it may still be written"
    look()
    assert stored(job) == {}, "two looks within a moment show nothing"
    grow_old()
    look()
    assert stored(job) == {"run/checkpoints/step-1.pt": MODEL}
    generation = StoredObject.objects.get().generation
    look()
    assert StoredObject.objects.get().generation == generation, "it is not stored twice"
    host.write(job, "bucket-1/run/checkpoints/step-1.pt", b"shorter")
    look()
    grow_old()
    look()
    assert stored(job) == {"run/checkpoints/step-1.pt": b"shorter"}


def test_at_the_end_all_is_stored_and_the_host_keeps_nothing(begin, host, control_plane):
    job = begin(host)
    host.write(job, "bucket-1/run/model/weights", MODEL)
    host.write(job, "bucket-1/run/model/empty", b"")
    end(control_plane, host, job)
    assert job.state == JobState.SUCCEEDED
    assert wanted.wanted(host.row.pk)[Run.objects.get().pk].forget is False, (
        "its outputs are on the host only"
    )
    look()
    assert stored(job) == {"run/model/weights": MODEL, "run/model/empty": b""}
    row = host.outputs(job)
    assert row.stage == OutputStage.STORED and row.due_at is None and not host.top(job).exists()
    line = Transition.objects.get(job=job, kind="outputs")
    assert line.to_state == "stored" and "2" in line.cause
    verify.verify_logs(verify.due_for_verification(timezone.now()), timezone.now())
    assert wanted.wanted(host.row.pk)[Run.objects.get().pk].forget


def test_a_file_that_is_written_while_it_comes_is_taken_again(begin, host, control_plane, monkeypatch):
    job = begin(host)
    place = host.write(job, "bucket-1/run/log", MODEL)
    end(control_plane, host, job)
    put = objects.put_object

    def meanwhile(project, bucket, name, chunks, *rest, **more):
        def slow():
            for number, data in enumerate(chunks):
                if number == 0:
                    place.write_bytes(b"another" + MODEL)
                yield data

        return put(project, bucket, name, slow(), *rest, **more)

    monkeypatch.setattr(objects, "put_object", meanwhile)
    look()
    assert stored(job) == {} and host.outputs(job).stage == OutputStage.ENDING
    monkeypatch.setattr(objects, "put_object", put)
    look()
    assert stored(job) == {"run/log": b"another" + MODEL}
    assert host.outputs(job).stage == OutputStage.STORED


def test_a_transfer_that_breaks_off_goes_on_where_it_was(
    begin, host, control_plane, connections, monkeypatch
):
    monkeypatch.setattr(uploading, "RECONNECTS_S", (0, 0, 0, 0))
    job = begin(host)
    for number in range(5):
        host.write(job, f"bucket-1/run/part-{number}", MODEL[number * 600_000 :][:600_000])
    end(control_plane, host, job)
    connections.cuts = [900_000, 200_000, None]
    connections.made = 0
    look()
    assert stored(job) == {f"run/part-{n}": MODEL[n * 600_000 :][:600_000] for n in range(5)}
    assert connections.made == 3 and host.outputs(job).stage == OutputStage.STORED


@pytest.mark.parametrize("cuts", [[], [900_000]])
def test_bytes_that_changed_on_the_way_are_not_stored(
    begin, host, control_plane, connections, monkeypatch, cuts
):
    monkeypatch.setattr(uploading, "RECONNECTS_S", (0,))
    job = begin(host)
    host.write(job, "bucket-1/run/weights", MODEL[:1_999_990] + b"right" * 4 + MODEL[2_000_000:])
    end(control_plane, host, job)
    connections.cuts = cuts
    honest = PipeChannel.recv
    monkeypatch.setattr(PipeChannel, "recv", lambda *given: honest(*given).replace(b"right", b"wrong"))
    look()
    assert stored(job) == {} and OutputFile.objects.get().problem


def test_what_was_stored_before_a_failure_is_not_sent_again(
    begin, host, control_plane, connections, monkeypatch
):
    monkeypatch.setattr(uploading, "RECONNECTS_S", ())
    job = begin(host)
    for number in range(5):
        host.write(job, f"bucket-1/run/part-{number}", MODEL[number * 600_000 :][:600_000])
    end(control_plane, host, job)
    connections.cuts = [1_500_000]
    look()
    row = host.outputs(job)
    assert len(stored(job)) == 2 and row.tries == 1 and "broke off" in row.problem
    generations = dict(StoredObject.objects.values_list("name", "generation"))
    look()
    assert host.outputs(job).stage == OutputStage.STORED and len(stored(job)) == 5
    assert generations.items() <= dict(StoredObject.objects.values_list("name", "generation")).items()


def test_links_and_devices_are_left_out_and_names_that_no_object_has_stay(begin, host, control_plane):
    job = begin(host)
    place = host.write(job, "bucket-1/run/a", b"a")
    (place.parent / "link").symlink_to("/etc/passwd")
    (place.parent / "etc").symlink_to("/etc")
    os.mkfifo(place.parent / "pipe")
    (place.parent / "two\nlines").write_text("x")
    end(control_plane, host, job)
    look()
    row = host.outputs(job)
    assert stored(job) == {"run/a": b"a"}
    assert row.left_out == {"links": 2, "other": 1, "names": 1}
    assert row.stage == OutputStage.KEPT and (place.parent / "two\nlines").exists(), "nothing is thrown away"
    assert Transition.objects.get(job=job, kind="outputs").to_state == "kept"
    services.delete(job, "alice", timezone.now())
    due.drop_deleted(timezone.now())
    look()
    assert not host.top(job).exists()


@pytest.mark.parametrize("names", [["epoch-7.ckpt"], []])
def test_links_are_not_said_to_be_stored(begin, host, control_plane, names):
    """The latest checkpoint of many programs is one: it is gone with the host's copy."""
    job = begin(host)
    for name in ["model", *names]:
        place = host.write(job, f"bucket-1/run/{name}", b"a")
    (place.parent / "last.ckpt").symlink_to("epoch-7.ckpt")
    if not names:
        place.unlink()
    end(control_plane, host, job)
    look()
    assert host.outputs(job).stage == OutputStage.STORED and not host.top(job).exists()
    line = Transition.objects.get(job=job, kind="outputs")
    assert line.to_state == "stored" and line.cause.endswith("went with the host's copy: 1.")


def test_a_host_cannot_write_into_buckets_that_the_job_does_not_name(begin, host, control_plane, project):
    job = begin(host)
    release = buckets.create(project, "release-1", "alice", timezone.now())
    there = host.write(job, "release-1/code.tar.gz", b"not what was released")
    host.write(job, "bucket-1/elsewhere/a", b"a")
    end(control_plane, host, job)
    look()
    row = host.outputs(job)
    assert stored(job) == {"elsewhere/a": b"a"} and not StoredObject.objects.filter(bucket=release).exists()
    assert row.left_out == {"elsewhere": 1} and row.stage == OutputStage.KEPT and there.exists()


def test_what_a_host_cannot_read_stays_there_and_is_not_taken_for_deleted(
    begin, host, control_plane, monkeypatch
):
    job = begin(host)
    place = host.write(job, "bucket-1/run/private/a", b"a")
    look()
    grow_old()
    look()

    def hidden(talk):
        talk.left_out = {"unreadable": 1}
        return iter(())

    monkeypatch.setattr(OutputsConversation, "list", hidden)
    end(control_plane, host, job)
    look()
    assert host.outputs(job).stage == OutputStage.KEPT and place.exists()
    assert not OutputFile.objects.exclude(gone_at=None).exists(), "the next host gets it, too"


def test_a_full_quota_leaves_the_files_on_the_host_and_says_so(begin, host, control_plane):
    job = begin(host)
    host.write(job, "bucket-1/run/model", MODEL)
    quota = Quota.objects.create(project=job.project, metric="storage_gb", value=0.001)
    end(control_plane, host, job)
    look()
    row = host.outputs(job)
    assert stored(job) == {} and row.stage != OutputStage.STORED and host.top(job).exists()
    assert "project default" in row.problem and row.due_at is not None
    quota.delete()
    look()
    assert stored(job) == {"run/model": MODEL} and host.outputs(job).problem == ""


def test_the_next_host_is_filled_before_the_next_run_starts(begin, add_files, host, control_plane):
    job = begin(host)
    host.write(job, "bucket-1/run/checkpoints/step-1", MODEL)
    host.write(job, "bucket-1/run/checkpoints/step-0", b"old")
    look()
    grow_old()
    look()
    (host.top(job) / "bucket-1/run/checkpoints/step-0").unlink()
    other = add_files("h2")
    move_to(other, job, control_plane, host)
    new = Run.objects.get(host=other.row)
    assert wanted.wanted(other.row.pk)[new.pk].held_back, "the host is not filled yet"
    look()
    look()
    filled = other.top(job) / "bucket-1/run/checkpoints"
    assert (filled / "step-1").read_bytes() == MODEL
    assert not (filled / "step-0").exists(), "its program had deleted it"
    assert not wanted.wanted(other.row.pk)[new.pk].held_back
    generation = StoredObject.objects.get(name="run/checkpoints/step-1").generation
    grow_old()
    look()
    assert StoredObject.objects.get(name="run/checkpoints/step-1").generation == generation


def move_to(other, job, control_plane, host):
    cordon_and_drain.drain(host.row, "", None, False, "alice", timezone.now())
    for _ in range(5):
        settle(control_plane, host.fake, other.fake)
        control_plane.look(())


def test_a_host_that_does_not_answer_keeps_its_files(begin, host, control_plane, connections):
    job = begin(host)
    host.write(job, "bucket-1/run/model", b"weights")
    end(control_plane, host, job)
    connections.refusal = OutputsBroken("the host does not answer")
    for _ in range(3):
        look()
    row = host.outputs(job)
    assert row.tries == 3 and row.problem == "the host does not answer" and row.stage == OutputStage.ENDING
    connections.refusal = None
    look()
    assert host.outputs(job).stage == OutputStage.STORED


def test_a_host_that_is_not_up_is_not_dialled(begin, host, control_plane, connections):
    job = begin(host)
    host.write(job, "bucket-1/run/model", b"weights")
    end(control_plane, host, job)
    Host.objects.update(status=HostStatus.UNREACHABLE)
    connections.made = 0
    look()
    assert connections.made == 0 and "does not answer" in host.outputs(job).problem
    Host.objects.update(status=HostStatus.UP)
    look()
    assert host.outputs(job).stage == OutputStage.STORED


def test_what_lies_on_a_removed_host_is_given_up_and_said(begin, host, control_plane):
    job = begin(host)
    host.write(job, "bucket-1/run/model", b"weights")
    end(control_plane, host, job)
    Host.objects.update(retired_at=timezone.now())
    look()
    row = HostOutputs.objects.get()
    assert row.stage == OutputStage.KEPT and row.due_at is None and "removed" in row.problem
    assert Transition.objects.get(kind="outputs").to_state == "kept"


def test_a_job_that_ended_without_proof_keeps_its_files_until_its_runs_are_closed(begin, host):
    job = begin(host)
    host.write(job, "bucket-1/run/model", b"weights")
    Job.every.filter(pk=job.pk).update(state=JobState.CANCELLED, ended_at=timezone.now())
    look()
    look()
    assert host.outputs(job).stage == OutputStage.WRITING and host.top(job).exists()
    grow_old()
    look()
    assert stored(job) == {"run/model": b"weights"} and host.top(job).exists(), "its run may still write"


def test_two_workers_do_not_work_on_one_row(begin, host):
    job = begin(host)
    row = host.outputs(job)
    HostOutputs.objects.update(due_at=timezone.now())
    first = moving.claim(row.pk)
    assert first is not None and moving.claim(row.pk) is None
    HostOutputs.objects.update(due_at=timezone.now())
    second = moving.claim(row.pk)
    assert second is not None
    with pytest.raises(moving.Superseded):
        first.write(problem="late")
    second.write(problem="")


def test_another_projects_bucket_is_refused(submit, host, project):
    other = Project.objects.create(name="other", created_at=timezone.now())
    buckets.create(other, "bucket-9", "bob", timezone.now())
    document = spec()
    document["jobSpec"]["baseOutputDirectory"] = {"outputUriPrefix": "gs://bucket-9/run"}
    with pytest.raises(Refused, match="bucket-9 is not one of project default"):
        submit(document)


def test_many_small_files_are_stored_with_few_questions(begin, host, control_plane):
    job = begin(host)
    for number in range(300):
        host.write(job, f"bucket-1/run/parts/{number:05}", b"%d" % number)
    end(control_plane, host, job)
    look()
    assert OutputFile.objects.exclude(stored_at=None).count() == 300 == StoredObject.objects.count()
    assert host.outputs(job).stage == OutputStage.STORED
