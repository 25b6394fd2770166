"""Blobs: kept once for each project, believed only when they are whole, removed when nothing points to them."""

from __future__ import annotations

import base64
import hashlib
import os
import resource
import threading
from datetime import timedelta

import google_crc32c
import pytest
from django.db import OperationalError, connection
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from agents.infra.refusals import Exhausted, Refused, Unavailable
from jobs.artifacts import artifacts, blobs, buckets, incoming, leftovers, objects, room, storage
from jobs.artifacts.incoming import Incoming, WrongDigest
from jobs.models import Artifact, Blob, Job, StoredObject
from jobs.projects import quotas
from jobs.projects.quotas import QuotaTarget
from jobs.rules.scheduling.quota import Metric
from tests.unit.jobs.artifacts.conftest import files


def put(bucket, name, data=b"hello", **about):
    return objects.put_object(bucket.project, bucket.name, name, [data], by="alice", **about)


def limit(project, gb):
    quotas.set_limit(QuotaTarget(project), Metric.STORAGE_GB, "", gb, "root", timezone.now())


def later(**passed):
    return timezone.now() + timedelta(**passed)


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_digests_do_not_depend_on_how_the_bytes_were_cut(tmp_path_factory, pieces):
    path = tmp_path_factory.mktemp("received") / "file"
    whole = b"".join(pieces)
    received = Incoming(path, with_md5=True)
    found = incoming.fill(received, pieces)
    assert path.read_bytes() == whole
    assert (found.size, found.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())
    assert base64.b64decode(found.crc32c) == google_crc32c.Checksum(whole).digest()
    assert base64.b64decode(found.md5) == hashlib.md5(whole).digest()
    assert incoming.digests_of(path, with_md5=True) == found
    received.discard()


def test_the_same_bytes_are_stored_once_in_a_project_and_again_in_another(bucket, project, other):
    first, second = put(bucket, "a"), put(bucket, "b")
    made = artifacts.add_artifact(project, "archive", "code.tar", [b"hel", b"lo"], "alice")
    assert first.blob_id == second.blob_id == made.blob_id
    elsewhere = artifacts.add_artifact(other, "archive", "code.tar", [b"hello"], "bob")
    assert elsewhere.blob_id != made.blob_id
    assert len(files()[0]) == Blob.objects.count() == 2
    assert artifacts.find_artifact(other, made.sha256) == elsewhere
    assert room.stored_bytes([project.pk, other.pk]) == {project.pk: 5, other.pk: 5}


def test_a_sender_that_breaks_off_leaves_nothing(bucket):
    def broken():
        yield b"half"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        objects.put_object(bucket.project, bucket.name, "a", broken())
    assert files() == ([], [])
    assert not Blob.objects.exists()


def test_a_wrong_digest_is_refused_and_nothing_is_stored(project):
    with pytest.raises(WrongDigest, match="send them again"):
        artifacts.add_artifact(project, "archive", "code.tar", [b"hello"], "alice", sha256="0" * 64)
    assert files() == ([], [])
    assert not Artifact.objects.exists()


def test_a_crash_between_file_and_row_leaves_an_orphan_that_the_sweep_removes(bucket, monkeypatch):
    """As after a kill: the file stands, its row was never committed, and nothing was tidied."""
    monkeypatch.setattr(blobs, "_row", lambda *args: os.abort_this_thread())
    monkeypatch.setattr(os, "abort_this_thread", lambda: (_ for _ in ()).throw(SystemExit), raising=False)
    with monkeypatch.context() as killed:
        killed.setattr(storage, "remove", lambda key: None)
        with pytest.raises(SystemExit):
            put(bucket, "a")
    assert len(files()[0]) == 1
    assert objects.find_object(bucket.project, "gs://first-bucket/a") is None
    assert leftovers.sweep_orphans(0.0) == 0
    assert leftovers.sweep_orphans(3599.0) == 0
    assert leftovers.sweep_orphans(3600.0) == 1
    assert files()[0] == []


@pytest.mark.django_db(transaction=True)
def test_a_commit_whose_answer_is_lost_keeps_the_bytes_that_its_rows_point_to(project, monkeypatch):
    bucket = buckets.create(project, "first-bucket", "alice", timezone.now())
    commit = connection._commit

    def lost():
        commit()
        raise OperationalError("the connection was lost")

    with monkeypatch.context() as broken:
        broken.setattr(connection, "_commit", lost)
        with pytest.raises(OperationalError):
            put(bucket, "a")
    assert b"".join(objects.open_object(put(bucket, "a"))) == b"hello"


def test_a_blob_is_removed_an_hour_after_the_last_name_has_gone(bucket):
    row = put(bucket, "a")
    again = put(bucket, "b")
    objects.delete_object(row, "alice", timezone.now())
    assert blobs.sweep(later(hours=2)) == (0, True)
    objects.delete_object(again, "alice", timezone.now())
    assert blobs.sweep(later(minutes=59)) == (0, True)
    assert len(files()[0]) == 1
    assert blobs.sweep(later(minutes=61)) == (1, True)
    assert files()[0] == []
    assert not Blob.objects.exists()


def test_bytes_that_were_replaced_are_removed_after_an_hour(bucket):
    put(bucket, "a", b"old")
    put(bucket, "a", b"new")
    assert blobs.sweep(later(minutes=61)) == (1, True)
    row = objects.find_object(bucket.project, "gs://first-bucket/a")
    assert b"".join(objects.open_object(row)) == b"new"


def test_a_job_keeps_what_it_needs_until_it_is_deleted(bucket, project, submit_job):
    job = submit_job()
    made = artifacts.add_artifact(project, "archive", "code.tar", [b"code"], "alice")
    artifacts.hold(made, job)
    artifacts.hold(made, job)
    artifacts.delete_artifact(made, "alice", timezone.now())
    assert blobs.sweep(later(days=30)) == (0, True)
    assert b"".join(blobs.read(made.blob)) == b"code"
    Job.every.filter(pk=job.pk).update(deleted_at=timezone.now())
    assert blobs.sweep(later(days=30)) == (1, True)


def test_what_was_swept_cannot_be_held(project, submit_job):
    job = submit_job()
    made = artifacts.add_artifact(project, "archive", "code.tar", [b"code"], "alice")
    artifacts.delete_artifact(made, "alice", timezone.now())
    blobs.sweep(later(hours=2))
    with pytest.raises(Refused, match="Upload it again"):
        artifacts.hold(made, job)


def test_a_job_of_another_project_cannot_hold_it(other, submit_job):
    made = artifacts.add_artifact(other, "archive", "code.tar", [b"code"], "bob")
    with pytest.raises(Refused):
        artifacts.hold(made, submit_job())


def test_bytes_that_come_again_are_not_swept(bucket):
    """Nothing points to the blob, its hour is over, and the same bytes come at this moment."""
    objects.delete_object(put(bucket, "a"), "alice", timezone.now())
    Blob.objects.update(touched_at=later(hours=-5))
    row = put(bucket, "b")
    assert blobs.sweep(later()) == (0, True)
    assert b"".join(objects.open_object(row)) == b"hello"


def test_what_comes_to_be_needed_while_it_is_swept_stays(bucket, submit_job, monkeypatch):
    """A job takes the blob after the sweep has listed it, and before the sweep has its lock."""
    row, job, looks = put(bucket, "a"), submit_job(), []
    objects.delete_object(row, "alice", timezone.now())
    real = blobs._unused

    def unused(now):
        looks.append(now)
        if len(looks) == 2:
            blobs.hold(row.blob, job)
        return real(now)

    monkeypatch.setattr(blobs, "_unused", unused)
    assert blobs.sweep(later(hours=2)) == (0, True)
    assert Blob.objects.filter(pk=row.blob_id).exists() and storage.exists(row.blob.key)


def test_the_quota_is_refused_in_words_and_what_was_sent_is_removed(bucket, project):
    limit(project, 0.00001)
    put(bucket, "a", b"x" * 6000)
    with pytest.raises(Exhausted) as refused:
        put(bucket, "b", b"y" * 6000)
    assert refused.value.message.startswith("project default stores 0.00 GB of files and may store 1e-05 GB")
    assert len(files()[0]) == 1
    put(bucket, "b", b"x" * 6000)
    with pytest.raises(Exhausted):
        blobs.check_announced(project, 4001)
    blobs.check_announced(project, 4000)


def test_a_full_disk_takes_nothing(bucket, monkeypatch):
    monkeypatch.setattr(storage, "free_bytes", lambda: 0)
    monkeypatch.setattr(incoming, "STEP_BYTES", 4)
    with pytest.raises(Unavailable, match="nearly full"):
        put(bucket, "a", b"too much")
    assert files() == ([], [])


@pytest.mark.django_db(transaction=True)
def test_two_uploads_of_the_same_bytes_at_once_make_one_blob(project):
    made, together = [], threading.Barrier(2)

    def chunks():
        yield b"the same"
        together.wait(20)

    def add(name):
        try:
            made.append(artifacts.add_artifact(project, "archive", name, chunks(), "alice"))
        finally:
            connection.close()

    threads = [threading.Thread(target=add, args=(name,)) for name in ("one", "two")]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert len(made) == 2
    assert len({row.blob_id for row in made}) == Blob.objects.count() == len(files()[0]) == 1
    assert b"".join(artifacts.open_artifact(made[0])) == b"the same"


@pytest.mark.django_db(transaction=True)
def test_two_uploads_cannot_share_the_last_place(project):
    limit(project, 0.00001)
    refused, together = [], threading.Barrier(2)

    def chunks(letter):
        yield letter * 6000
        together.wait(20)

    def add(letter):
        try:
            artifacts.add_artifact(project, "archive", "a", chunks(letter), "alice")
        except Exhausted as problem:
            refused.append(problem)
        finally:
            connection.close()

    threads = [threading.Thread(target=add, args=(letter,)) for letter in (b"x", b"y")]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert len(refused) == Blob.objects.count() == len(files()[0]) == 1


def test_memory_does_not_grow_with_the_bytes(bucket):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    piece = bytes(1024 * 1024)
    row = objects.put_object(bucket.project, bucket.name, "large", (piece for _ in range(200)))
    assert sum(len(part) for part in objects.open_object(row)) == row.blob.size == 200 * 1024 * 1024
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 * 1024


def test_a_file_that_is_gone_is_told_and_not_read_as_empty(bucket):
    row = put(bucket, "a")
    storage.remove(row.blob.key)
    with pytest.raises(storage.BytesMissing):
        list(objects.open_object(StoredObject.objects.get()))


@pytest.mark.django_db(transaction=True)
def test_no_connection_is_held_while_a_file_goes_to_the_storage(project, monkeypatch):
    """Those of PostgreSQL are few, and a storage elsewhere may take hours. SQLite's is the thread's own."""

    def slow_keep(path, key):
        held.append(connection.connection is not None)
        keep(path, key)

    held, keep = [], storage.keep
    monkeypatch.setattr(storage, "keep", slow_keep)
    row = put(buckets.create(project, "first-bucket", "alice", timezone.now()), "a")
    assert held == [connection.vendor == "sqlite"]
    assert b"".join(objects.open_object(row)) == b"hello"
