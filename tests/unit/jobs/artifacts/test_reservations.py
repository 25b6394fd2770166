"""The quota of stored files is exact: what is being received has its place reserved, and leaves it when it has gone."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from agents.infra.refusals import Exhausted
from jobs.artifacts import artifacts, buckets, incoming, objects, room, storage, uploads
from jobs.artifacts.objects import About
from jobs.artifacts.uploads import Announced, Part
from jobs.models import Reservation, Upload
from tests.harness.wait_and_processes import wait_for
from tests.unit.jobs.artifacts.conftest import files
from tests.unit.jobs.artifacts.test_blobs import limit, put

pytestmark = pytest.mark.django_db
MB = storage.MB


def receive(file, mb):
    for _ in range(mb):
        file.write(bytes(MB))


def test_two_files_that_come_at_once_share_the_quota_while_they_come(project):
    limit(project, 0.02)
    with incoming.incoming(project) as first, incoming.incoming(project) as second:
        receive(first, 12)
        with pytest.raises(Exhausted) as refused:
            receive(second, 12)
        assert "may store 0.02 GB" in refused.value.message
        assert second.size <= room.UNRESERVED, "it had reserved ahead only what was free"
        first.finish()
    assert not Reservation.objects.exists() and room.free_bytes(project) == 20_000_000


def test_a_file_that_has_come_counts_once(project):
    """Its reservation ends in the transaction that stores it, and its own place is not against it."""
    limit(project, 0.015)
    made = artifacts.add_artifact(project, "archive", "code.tar", [bytes(MB)] * 14, "alice")
    assert made.blob.size == 14 * MB
    assert not Reservation.objects.exists()
    assert room.free_bytes(project) == 15_000_000 - 14 * MB


def test_small_files_need_no_reservation(project, bucket, monkeypatch):
    limit(project, 1)
    monkeypatch.setattr(room, "reserve", lambda *args: pytest.fail("a small file has reserved"))
    put(bucket, "a", bytes(MB))


@pytest.mark.django_db(transaction=True)
def test_many_at_once_never_receive_more_than_the_quota_together(project):
    """Eight senders of 6 MB each, 20 MB allowed: some are refused, and what has come is never more."""
    limit(project, 0.02)
    bucket = buckets.create(project, "first-bucket", "alice", timezone.now())
    coming, refused, lock, most = {}, [], threading.Lock(), []

    def pieces(name):
        for number in range(6):
            with lock:
                coming[name] = number
                most.append(sum(max(each - 1, 0) for each in coming.values()))
            yield bytes([len(name)]) * (MB - 1) + name.encode()[:1]

    def send(name):
        try:
            objects.put_object(project, bucket.name, name, pieces(name), by="alice")
        except Exhausted:
            refused.append(name)
            with lock:
                coming.pop(name)
        finally:
            connection.close()

    threads = [threading.Thread(target=send, args=(f"{number}",)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert refused
    assert max(most) * MB <= 20_000_000
    assert room.stored_bytes([project.pk])[project.pk] <= 20_000_000
    assert not Reservation.objects.exists()


def test_what_a_dead_process_has_reserved_is_free_again(project):
    limit(project, 0.02)
    room.reserve(project, "one-dead", 19_000_000, timedelta(minutes=10))
    with pytest.raises(Exhausted):
        room.check(project, 2_000_000)
    Reservation.objects.update(until=timezone.now() - timedelta(seconds=1))
    room.check(project, 20_000_000)
    room.sweep(timezone.now())
    assert not Reservation.objects.exists()


def test_a_reservation_goes_on_while_its_bytes_come(project, monkeypatch):
    limit(project, 0.02)
    now = [100.0]
    monkeypatch.setattr(room.time, "monotonic", lambda: now[0])
    with incoming.incoming(project) as file:
        receive(file, 3)
        Reservation.objects.update(until=timezone.now() + timedelta(seconds=1))
        file.write(b"1")
        assert Reservation.objects.get().until < timezone.now() + timedelta(seconds=5)
        now[0] += room.while_it_comes().total_seconds() / 3
        file.write(b"1")
        assert Reservation.objects.get().until > timezone.now() + timedelta(minutes=5)


@pytest.fixture
def begin(bucket, alice):
    def begin(size=None):
        return uploads.begin(bucket, "a", About(), Announced(size), alice, timezone.now())[0]

    return begin


def test_an_upload_without_a_size_reserves_what_has_come_of_it(begin, project):
    limit(project, 0.02)
    upload = begin()
    part = Part(upload, 0, None)
    part.write(bytes(3 * MB))
    assert room.free_bytes(project) == 20_000_000 - 3 * MB - room.STEP
    part.discard()
    assert room.free_bytes(project) == 20_000_000 - 3 * MB, "what was reserved ahead is free"
    uploads.cancel(upload)
    assert room.free_bytes(project) == 20_000_000 and files() == ([], [])


def test_an_upload_that_has_gone_with_its_bucket_reserves_nothing(begin, bucket, project):
    limit(project, 0.02)
    begin(19_000_000)
    buckets.delete(bucket, "alice", timezone.now())
    assert not Upload.objects.exists() and room.free_bytes(project) == 1_000_000
    uploads.sweep(timezone.now(), 0.0)
    assert room.free_bytes(project) == 20_000_000


def test_an_upload_that_nobody_ended_in_a_week_reserves_nothing(begin, project):
    limit(project, 0.02)
    begin(19_000_000)
    uploads.sweep(timezone.now() + uploads.LIFE, 0.0)
    assert room.free_bytes(project) == 20_000_000


@pytest.mark.django_db(transaction=True)
def test_what_is_sent_on_for_hours_keeps_its_reservation(project, monkeypatch):
    """To a storage elsewhere. A reservation ends by itself unless somebody renews it."""
    limit(project, 0.015)
    monkeypatch.setattr(room, "RENEWED_S", 0.05)

    def slow_keep(path, key):
        Reservation.objects.filter(name=path.name).update(until=timezone.now() + timedelta(seconds=1))
        later = timezone.now() + timedelta(minutes=5)
        wait_for(lambda: Reservation.objects.get().until > later, "the reservation to be renewed", timeout=20)
        with pytest.raises(Exhausted):
            artifacts.add_artifact(project, "archive", "other.tar", [bytes(MB)] * 12, "alice")
        keep(path, key)

    keep = storage.keep
    monkeypatch.setattr(storage, "keep", slow_keep)
    made = artifacts.add_artifact(project, "archive", "code.tar", [bytes(MB)] * 12, "alice")
    assert made.blob.size == 12 * MB and not Reservation.objects.exists()
