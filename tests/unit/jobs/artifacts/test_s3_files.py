"""Stored files in S3: the same promises as in a directory, read by range, and never the whole in memory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from agents.infra.refusals import Unavailable
from console import environment
from console.runtime import backend_settings, shared_files
from jobs import sweep
from jobs.artifacts import artifacts, blobs, leftovers, objects, s3_files, storage
from jobs.artifacts.s3_files import PART_BYTES
from jobs.models import Artifact, Blob
from tests.harness.s3_server import S3Server
from tests.unit.jobs.artifacts.conftest import files

pytestmark = pytest.mark.django_db
MB = 1024 * 1024


@pytest.fixture(scope="module")
def server():
    found = S3Server()
    try:
        yield found.start()
    finally:
        found.close()


def use(settings, url, deployment="ty-one"):
    """The settings of a process that was started with this TRAINYARD_STORAGE_URL."""
    here = environment.read({"TRAINYARD_DATA": str(settings.TRAINYARD.data), "TRAINYARD_STORAGE_URL": url})
    settings.TRAINYARD = here
    settings.STORAGES = settings.STORAGES | {"artifacts": backend_settings.stored_files(here, deployment)}


@pytest.fixture(autouse=True)
def in_s3(server, settings, monkeypatch, empty_storage):
    for name, value in server.credentials.items():
        monkeypatch.setenv(name, value)
    use(settings, server.url)
    leftovers.forget()
    yield
    for name, value in server.credentials.items():
        monkeypatch.setenv(name, value)
    use(settings, server.url)
    for key in list(storage.files()):
        storage.remove(key)
    for part in list(storage.parts()):
        storage.abandon(part)


def put(bucket, name, data=b"hello"):
    return objects.put_object(bucket.project, bucket.name, name, [data], by="alice")


def silent_port():
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_an_object_is_stored_read_by_range_and_removed(bucket, server):
    row = put(bucket, "a", b"0123456789")
    assert server.names() == ([f"lab/ty-one/{row.blob.key}"], [])
    assert b"".join(objects.open_object(row)) == b"0123456789"
    assert b"".join(objects.open_object(row, 3, 7)) == b"3456"
    assert b"".join(objects.open_object(row, 10)) == b""
    assert files() == ([row.blob.key], []), "what was received has gone from the disk"
    objects.delete_object(row, "alice", timezone.now())
    assert blobs.sweep(timezone.now() + timedelta(hours=2)) == (1, True)
    assert server.names() == ([], [])


def test_an_empty_file_is_a_file(bucket):
    row = put(bucket, "a", b"")
    assert b"".join(objects.open_object(row)) == b"" and storage.exists(row.blob.key)


def test_only_the_range_comes_from_the_storage(bucket, monkeypatch):
    row = put(bucket, "a", bytes(3 * MB))
    client, asked = storage.store().client, []
    real = client.get_object
    monkeypatch.setattr(client, "get_object", lambda **what: asked.append(what["Range"]) or real(**what))
    assert b"".join(objects.open_object(row, MB, MB + 5)) == bytes(5)
    assert asked == [f"bytes={MB}-{MB + 4}"]


def test_a_large_file_goes_up_in_parts_and_comes_back_whole(project, server):
    data = os.urandom(2 * PART_BYTES + 5)
    row = artifacts.add_artifact(project, "archive", "code.tar", [data], "alice")
    head = server.client().head_object(Bucket=server.bucket, Key=f"lab/ty-one/{row.blob.key}")
    assert head["ETag"].rstrip('"').endswith("-3") and head["ContentLength"] == len(data)
    assert b"".join(artifacts.open_artifact(row)) == data
    start = PART_BYTES - 3
    assert b"".join(artifacts.open_artifact(row, start, start + 10)) == data[start : start + 10]


MEMORY = """
import resource, sys
from pathlib import Path
import django
django.setup()
from jobs.artifacts import storage
small, large = map(Path, sys.argv[1:])
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
def move(path, key):
    storage.keep(path, key)
    assert sum(map(len, storage.read(key, 0, path.stat().st_size))) == path.stat().st_size
    storage.remove(key)
move(small, "1/aa/small")
before = most()
move(large, "1/aa/large")
print(most() - before)
"""


def test_memory_does_not_grow_with_the_file(server, tmp_path):
    """140 MB up and down again cost less than 40 MB more than 40 MB do."""
    for name, size in (("small", 40), ("large", 140)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size * MB)
    found = subprocess.run(
        [sys.executable, "-c", MEMORY, tmp_path / "small", tmp_path / "large"],
        capture_output=True,
        text=True,
        env=os.environ
        | server.credentials
        | {
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "TRAINYARD_DATA": str(tmp_path / "data"),
            "TRAINYARD_STORAGE_URL": server.url,
        },
    )
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < 40, found.stdout


def test_what_breaks_off_while_it_is_read_goes_on_at_its_place(bucket, monkeypatch):
    data = os.urandom(3 * MB)
    row, cut = put(bucket, "a", data), []
    real = s3_files.S3Files._range

    def broken(self, key, start, end):
        cut.append(start)
        for piece in real(self, key, start, end):
            yield piece
            if len(cut) < 3:
                raise s3_files.ResponseStreamingError(error="cut")

    monkeypatch.setattr(s3_files.S3Files, "_range", broken)
    assert b"".join(objects.open_object(row)) == data
    assert cut == [0, MB, 2 * MB]


def test_what_breaks_off_again_and_again_is_told(bucket, monkeypatch):
    row, tries = put(bucket, "a"), []

    def broken(self, key, start, end):
        tries.append(start)
        raise s3_files.ResponseStreamingError(error="cut")
        yield

    monkeypatch.setattr(s3_files.S3Files, "_range", broken)
    with pytest.raises(storage.NotReached):
        b"".join(objects.open_object(row))
    assert len(tries) == s3_files.TRIES


def test_bytes_that_are_missing_are_told_before_the_first(bucket):
    row = put(bucket, "a")
    storage.remove(row.blob.key)
    with pytest.raises(storage.BytesMissing):
        objects.open_object(row)
    with pytest.raises(storage.BytesMissing):
        b"".join(storage.read(row.blob.key, 0, 5))


def test_an_upload_that_fails_midway_leaves_no_row_and_no_part(project, server, monkeypatch):
    """The third part is refused: the storage has no file of this name, and no part that takes room."""
    client, sent = storage.store().client, []
    real, lock = client.upload_part, threading.Lock()

    def refuse(**what):
        with lock:
            sent.append(what["PartNumber"])
        if what["PartNumber"] == 3:
            raise s3_files.ClientError({"Error": {"Code": "InternalError"}}, "UploadPart")
        return real(**what)

    monkeypatch.setattr(client, "upload_part", refuse)
    with pytest.raises(Unavailable, match="Try again"):
        artifacts.add_artifact(project, "archive", "code.tar", [bytes(3 * PART_BYTES)], "alice")
    assert 3 in sent
    assert server.names() == ([], []) and files() == ([], [])
    assert not Blob.objects.exists() and not Artifact.objects.exists()


def test_parts_that_a_kill_left_are_abandoned_after_a_day(server):
    client = server.client()
    for key in ("lab/ty-one/1/aa/half", "lab/ty-two/1/aa/half"):
        begun = client.create_multipart_upload(Bucket=server.bucket, Key=key)
        client.upload_part(
            Bucket=server.bucket, Key=key, UploadId=begun["UploadId"], PartNumber=1, Body=b"1" * 10
        )
    day = 86_400.0
    assert [leftovers.sweep_parts(at) for at in (5.0, day, 5.0 + day, 9.0 + day)] == [0, 0, 1, 0]
    assert server.names()[1] == ["lab/ty-two/1/aa/half"], "another deployment's part stays"
    use_other = server.client().list_multipart_uploads(Bucket=server.bucket)["Uploads"]
    for each in use_other:
        client.abort_multipart_upload(Bucket=server.bucket, Key=each["Key"], UploadId=each["UploadId"])


def test_two_deployments_in_one_bucket_remove_nothing_of_each_other(bucket, server, settings):
    row = put(bucket, "a")
    use(settings, server.url, deployment="ty-two")
    assert list(storage.files()) == []
    assert [leftovers.sweep_orphans(at) for at in (0.0, 7200.0)] == [0, 0]
    use(settings, server.url)
    assert b"".join(objects.open_object(row)) == b"hello"


def test_a_file_without_a_row_is_swept_after_an_hour(bucket, server, tmp_path):
    row = put(bucket, "a")
    (tmp_path / "lost").write_bytes(b"lost")
    storage.keep(tmp_path / "lost", "7/ab/lost")
    assert [leftovers.sweep_orphans(at) for at in (0.0, 3599.0, 3600.0)] == [0, 0, 1]
    assert server.names()[0] == [f"lab/ty-one/{row.blob.key}"]


@pytest.fixture
def away(settings, monkeypatch):
    """The storage does not answer, and nobody waits long for it."""
    use(settings, f"s3://kept-files/lab?endpoint=http://127.0.0.1:{silent_port()}")
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *args: 0)


def test_a_storage_that_is_away_loses_nothing(bucket, settings, server, caplog, monkeypatch):
    row, gone = put(bucket, "a"), put(bucket, "b", b"other")
    objects.delete_object(gone, "alice", timezone.now())
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *args: 0)
    use(settings, f"s3://kept-files/lab?endpoint=http://127.0.0.1:{silent_port()}")
    with pytest.raises(storage.NotReached):
        put(bucket, "c", b"new bytes")
    with pytest.raises(storage.NotReached):
        objects.open_object(row)
    assert "EndpointConnectionError" in caplog.text
    sweep.tidy_stored_files(sweep.Clock(timezone.now()))
    sweep.remove_blobs(sweep.Clock(timezone.now() + timedelta(hours=2)))
    use(settings, server.url)
    assert not Blob.objects.filter(sha256=gone.blob.sha256).exists()
    assert files()[0] == sorted([row.blob.key, gone.blob.key]), "its file is an orphan now"
    assert [leftovers.sweep_orphans(at) for at in (0.0, 3600.0)] == [0, 1]
    assert b"".join(objects.open_object(row)) == b"hello"


def test_the_start_says_which_storage_is_used(bucket, server):
    assert list(shared_files.notes()) == ["Files of projects are stored in s3://kept-files/lab/ty-one."]
    assert server.names() == ([], []), "the probe leaves nothing"
    row = put(bucket, "a")
    assert len(list(shared_files.notes())) == 1
    storage.remove(row.blob.key)
    assert "lacks files that the database names" in list(shared_files.notes())[1]


def test_the_start_says_what_to_do_when_the_storage_is_away(away):
    [note] = shared_files.notes()
    assert "s3://kept-files/lab/ty-one cannot be used" in note and "Check the endpoint" in note


def test_the_start_says_that_the_bucket_is_missing(server, settings):
    use(settings, server.url.replace("kept-files", "no-such-bucket"))
    [note] = shared_files.notes()
    assert "Make the bucket no-such-bucket" in note


def test_the_start_says_that_credentials_are_missing(monkeypatch, settings, server, tmp_path):
    for name in server.credentials:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    use(settings, server.url)
    [note] = shared_files.notes()
    assert "Set AWS_ACCESS_KEY_ID" in note


def test_the_checks_of_the_start_pass_where_the_packages_are():
    call_command("check")
