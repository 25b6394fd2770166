"""A bucket may say for how many days objects are kept: the housekeeping deletes older ones, and the audit says so."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents import time_doubt
from agents.infra.clock import Clock
from agents.infra.refusals import Refused
from agents.models import ClockJump, MachineClock
from jobs import sweep
from jobs.artifacts import buckets, expiry, uploads
from jobs.artifacts.objects import About
from jobs.artifacts.uploads import Announced
from jobs.models import AuditEntry, HostOutputs, Job, OutputFile, StoredObject, Upload
from jobs.rules.lifecycle.states import JobState
from tests.unit.console.views.example_rows import a_host
from tests.unit.jobs.artifacts.test_blobs import put

pytestmark = pytest.mark.django_db


def aged(row, days):
    StoredObject.objects.filter(pk=row.pk).update(created_at=timezone.now() - timedelta(days=days, minutes=1))


def names():
    return sorted(StoredObject.objects.values_list("name", flat=True))


def test_objects_that_are_too_old_are_deleted_and_the_audit_says_how_many(bucket, project):
    kept = buckets.create(project, "second-bucket", "alice", timezone.now())
    for name, days in (("old", 31), ("older", 40), ("young", 29)):
        aged(put(bucket, name, name.encode()), days)
        aged(put(kept, f"kept {name}", name.encode()), days)
    expiry.set_rule(bucket, 30, "alice", timezone.now())
    sweep.tidy_stored_files(Clock(timezone.now()))
    assert names() == ["kept old", "kept older", "kept young", "young"]
    rows = AuditEntry.objects.filter(subject="first-bucket").exclude(what="bucket.create").order_by("pk")
    assert [(row.actor, row.what, row.before, row.after) for row in rows] == [
        ("alice", "bucket.keep", None, 30),
        (expiry.ACTOR, "bucket.expire", None, {"objects": 2}),
    ]
    sweep.tidy_stored_files(Clock(timezone.now()))
    assert rows.count() == 2, "nothing was deleted, and nothing is said"


def test_an_object_that_was_replaced_is_young_again(bucket):
    aged(put(bucket, "a"), 40)
    expiry.set_rule(bucket, 30, "alice", timezone.now())
    put(bucket, "a", b"new")
    assert expiry.expire(timezone.now()) == 0 and names() == ["a"]


def test_more_than_one_batch_goes(bucket, monkeypatch):
    monkeypatch.setattr(expiry, "BATCH", 2)
    for number in range(5):
        aged(put(bucket, f"{number}"), 2)
    expiry.set_rule(bucket, 1, "alice", timezone.now())
    assert expiry.expire(timezone.now()) == 5 and names() == []


@pytest.mark.parametrize("days", [0, -1, 36_501])
def test_a_rule_that_makes_no_sense_is_refused(bucket, days):
    with pytest.raises(Refused, match="from 1 to 36500"):
        expiry.set_rule(bucket, days, "alice", timezone.now())


def test_the_same_rule_again_is_no_change(bucket):
    for _ in range(2):
        expiry.set_rule(bucket, 7, "alice", timezone.now())
    assert AuditEntry.objects.filter(what="bucket.keep").count() == 1


def test_after_a_restart_with_a_wrong_clock_nothing_is_deleted_by_its_age(bucket, kept_time, alice):
    """Ten years pass at once: every object looks older than the rule, and every upload older than a week."""
    put(bucket, "a")
    expiry.set_rule(bucket, 30, "alice", timezone.now())
    uploads.begin(bucket, "b", About(), Announced(), alice, timezone.now())
    wrong = timezone.now() + timedelta(days=3650)
    MachineClock.objects.create(
        machine="another boot",
        name="a",
        offset_s=0,
        database_s=0,
        machine_s=0,
        noted_at=wrong,
        unsure_since=wrong,
    )
    for hours in (0, 1, 23):
        sweep.tidy_stored_files(Clock(wrong + timedelta(hours=hours)))
        assert names() == ["a"] and Upload.objects.count() == 1
    assert "may be wrong" in expiry.waits(wrong)
    sweep.tidy_stored_files(Clock(wrong + timedelta(hours=25)))
    assert names() == [], "an admin had a day to see it"


def test_a_time_that_an_admin_has_set_deletes_nothing_for_a_day(bucket):
    aged(put(bucket, "a"), 40)
    expiry.set_rule(bucket, 30, "alice", timezone.now())
    ClockJump.objects.create(at=timezone.now(), clock=time_doubt.OWN, seconds=86400.0)
    assert expiry.expire(timezone.now()) == 0 and names() == ["a"]
    assert expiry.expire(timezone.now() + timedelta(hours=25)) == 1


def on_a_host(job, row):
    host, now = a_host(), timezone.now()
    outputs = HostOutputs.objects.create(job=job, host=host, created_at=now)
    return OutputFile.objects.create(
        outputs=outputs,
        path=f"{row.bucket.name}/{row.name}",
        size=5,
        mtime_ns=1,
        ctime_ns=1,
        inode=1,
        seen_at=now,
        stored_at=now,
        generation=row.generation,
    )


@pytest.fixture(params=["written", "on its host", "output directory"])
def of_job(request, bucket, submit_job):
    """A job, and an old object that it needs, of another size of batch each."""
    job = submit_job()
    if request.param == "written":
        row = put(bucket, "x/model.bin")
        StoredObject.objects.filter(pk=row.pk).update(metadata={"job": str(job.pk)})
    elif request.param == "on its host":
        row = put(bucket, "x/checkpoint")
        on_a_host(job, row)
    else:
        row = put(bucket, "run/7/checkpoints/last")
        job.spec["baseOutputDirectory"] = {"outputUriPrefix": f"gs://{bucket.name}/run/7"}
        job.save(update_fields=["spec"])
    aged(row, 40)
    return job, row


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING, JobState.CANCELLING])
def test_what_a_job_needs_that_is_not_over_stays_however_old(bucket, of_job, state, monkeypatch):
    monkeypatch.setattr(expiry, "BATCH", 1)
    job, row = of_job
    for name in ("a", "run/70/model", "z"):
        aged(put(bucket, name, name.encode()), 40)
    expiry.set_rule(bucket, 30, "alice", timezone.now())
    Job.objects.filter(pk=job.pk).update(state=state)
    assert expiry.expire(timezone.now()) == 3 and names() == [row.name]
    Job.objects.filter(pk=job.pk).update(state=JobState.SUCCEEDED)
    assert expiry.expire(timezone.now()) == 1 and names() == []


def test_what_was_replaced_since_it_was_put_on_a_host_is_not_the_jobs(bucket, submit_job):
    row = put(bucket, "x")
    on_a_host(submit_job(), row)
    aged(put(bucket, "x", b"newer"), 40)
    expiry.set_rule(bucket, 30, "alice", timezone.now())
    assert expiry.expire(timezone.now()) == 1


@pytest.mark.parametrize("noted", ["", "no number", "9" * 40, 7, None, ["1"]])
def test_what_people_note_on_objects_confuses_nobody(bucket, noted):
    row = put(bucket, "x")
    aged(row, 40)
    StoredObject.objects.filter(pk=row.pk).update(metadata={"job": noted})
    expiry.set_rule(bucket, 30, "alice", timezone.now())
    assert expiry.expire(timezone.now()) == 1
