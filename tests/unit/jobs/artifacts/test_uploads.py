"""Uploads in several requests: they go on where they stopped, one request at a time, and leave nothing behind."""

from __future__ import annotations

from datetime import timedelta

import google_crc32c
import pytest
from django.db import OperationalError
from django.utils import timezone

from agents.infra.refusals import Exhausted, Refused, Unavailable
from jobs.artifacts import blobs, incoming, objects, room, storage, uploads
from jobs.artifacts.incoming import TooLarge, WrongDigest
from jobs.artifacts.objects import About, Changed
from jobs.artifacts.uploads import Announced, OutOfOrder, Part
from jobs.models import Blob, StoredObject, Upload
from tests.unit.jobs.artifacts.conftest import files
from tests.unit.jobs.artifacts.test_blobs import limit, put

PLAIN = About()


@pytest.fixture
def begin(bucket, alice):
    def begin(size=None, about=PLAIN, **wanted):
        return uploads.begin(bucket, "a", about, Announced(size, **wanted), alice, timezone.now())

    return begin


def send(upload, start, data, most=None):
    part = Part(upload, start, most)
    try:
        part.write(data)
    finally:
        part.discard()


def finish(upload, start, data):
    part = Part(upload, start, None)
    part.write(data)
    return uploads.complete(upload, part, timezone.now())


def test_parts_become_one_object_and_the_address_finds_it_again(begin, bucket):
    upload, key = begin(10)
    assert uploads.find(key) == upload and uploads.find("another") is None
    send(upload, 0, b"01234")
    assert uploads.received(upload) == 5
    row = finish(upload, 5, b"56789")
    assert b"".join(objects.open_object(row)) == b"0123456789"
    assert row.blob.crc32c == incoming.crc32c_text(google_crc32c.value(b"0123456789"))
    assert uploads.find(key).stored == row
    assert files()[1] == []


def test_bytes_that_come_again_count_once_and_a_gap_is_refused(begin):
    upload, _ = begin(10)
    send(upload, 0, b"01234")
    send(upload, 2, b"23456")
    with pytest.raises(OutOfOrder) as refused:
        Part(upload, 8, None)
    assert refused.value.size == 7
    assert b"".join(objects.open_object(finish(upload, 7, b"789"))) == b"0123456789"


def test_only_one_request_sends_at_a_time(begin):
    upload, _ = begin()
    first = Part(upload, 0, None)
    with pytest.raises(Unavailable, match="Another request"):
        Part(upload, 0, None)
    first.discard()
    Part(upload, 0, None).discard()


def test_more_than_was_announced_is_refused(begin):
    upload, _ = begin(4)
    with pytest.raises(TooLarge):
        send(upload, 0, b"01234", most=4)


@pytest.mark.parametrize("cut", [0, 3])
def test_a_wrong_checksum_ends_the_upload_and_stores_nothing(begin, cut):
    upload, key = begin(10, crc32c="AAAAAA==")
    send(upload, 0, b"0123456789"[:cut])
    with pytest.raises(WrongDigest):
        finish(upload, cut, b"0123456789"[cut:])
    assert uploads.find(key) is None and files() == ([], [])
    assert not Blob.objects.exists() and not StoredObject.objects.exists()


def test_an_object_that_came_meanwhile_is_not_replaced_against_the_condition(begin, bucket):
    upload, _ = begin(4, About(if_generation=0))
    put(bucket, "a", b"theirs")
    with pytest.raises(Changed):
        finish(upload, 0, b"mine")
    assert b"".join(objects.open_object(StoredObject.objects.get())) == b"theirs"


def test_what_is_announced_counts_in_the_quota_until_it_is_stored_or_cancelled(begin, bucket, project):
    limit(project, 0.00001)
    upload, _ = begin(6_000)
    with pytest.raises(Exhausted):
        begin(6_000)
    assert room.free_bytes(project) == 4_000
    finish(upload, 0, b"x" * 6_000)
    assert room.free_bytes(project) == 4_000
    objects.delete_object(StoredObject.objects.get(), "alice", timezone.now())
    blobs.sweep(timezone.now() + timedelta(hours=2))
    assert room.free_bytes(project) == 10_000
    another, _ = begin(6_000)
    uploads.cancel(another)
    assert room.free_bytes(project) == 10_000


def test_an_upload_keeps_its_bytes_until_the_object_is_committed(begin, monkeypatch):
    upload, key = begin(5)
    send(upload, 0, b"hello")
    with monkeypatch.context() as broken:
        broken.setattr(objects, "point", lambda *args: (_ for _ in ()).throw(OperationalError))
        with pytest.raises(OperationalError):
            finish(upload, 5, b"")
    assert uploads.received(upload) == 5
    assert b"".join(objects.open_object(finish(upload, 5, b""))) == b"hello"
    assert files()[1] == [] and uploads.find(key).stored is not None


def test_a_bad_name_is_refused_before_an_upload_begins(bucket, alice):
    with pytest.raises(Refused):
        uploads.begin(bucket, "../a", About(), Announced(), alice, timezone.now())
    assert not Upload.objects.exists()


def test_the_sweep_forgets_old_uploads_and_removes_files_that_do_not_grow(begin):
    upload, _ = begin(10)
    send(upload, 0, b"01234")
    left = storage.receiving_directory() / "one-of-a-killed-process"
    left.write_bytes(b"half")
    now = timezone.now()
    assert uploads.sweep(now, 0.0) == 0
    left.write_bytes(b"half more")
    assert uploads.sweep(now, 3600.0) == 0
    assert uploads.sweep(now, 7200.0) == 1
    assert [name[:7] for name in files()[1]] == ["upload-"]
    assert uploads.sweep(now + timedelta(days=8), 7300.0) == 1
    assert files()[1] == [] and not Upload.objects.exists()


@pytest.mark.parametrize("how", ["one request", "several requests"])
def test_a_file_that_is_sent_on_for_hours_is_not_swept(how, begin, bucket, monkeypatch):
    """To a storage elsewhere: meanwhile the file does not grow. The sweep looks every hour."""

    def slow_keep(path, key):
        for hour in range(4):
            # Beyond the week of an upload, which has begun days ago: its row goes.
            assert uploads.sweep(timezone.now() + timedelta(days=6, hours=hour * 12), 3600.0 * hour) == 0
        keep(path, key)

    keep = storage.keep
    monkeypatch.setattr(storage, "keep", slow_keep)
    if how == "one request":
        put(bucket, "a", b"0123456789")
    else:
        upload, _ = begin(10)
        finish(upload, 0, b"0123456789")
    row = objects.in_bucket(bucket, StoredObject.objects.get().name)
    assert b"".join(objects.open_object(row)) == b"0123456789"
    assert files()[1] == []
