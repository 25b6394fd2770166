"""Locks tell that a writer lives. Where a file system has none, or keeps others out by them, files are stored too."""

from __future__ import annotations

import errno
import fcntl
import io
import logging
import os
import shutil

import pytest
from django.utils import timezone

from agents.infra.refusals import Unavailable
from jobs.artifacts import file_locks, incoming, leftovers, objects, storage, uploads
from jobs.artifacts.objects import About
from jobs.artifacts.uploads import Announced, Part
from tests.unit.jobs.artifacts.conftest import files
from tests.unit.jobs.artifacts.test_blobs import put

HOUR = 3600.0


@pytest.fixture
def mount(monkeypatch):
    """The directory of stored files is a mount of its own: what was received is copied there."""

    def no_link(*args):
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "link", no_link)


@pytest.fixture
def refused(monkeypatch):
    """The answer of a file system to whoever wants a lock."""

    def answer(number):
        def flock(*args):
            raise OSError(number, os.strerror(number))

        file_locks._told.clear()
        monkeypatch.setattr(fcntl, "flock", flock)

    return answer


@pytest.fixture
def during_copy(monkeypatch):
    """Do something while a file is copied."""

    def use(act):
        def slow(source, target, length):
            copy(source, target, length)
            target.flush()
            act(target)

        copy = shutil.copyfileobj
        monkeypatch.setattr(shutil, "copyfileobj", slow)

    return use


def test_a_file_that_is_copied_for_hours_is_no_orphan(bucket, mount, during_copy):
    """The storage is a slow mount of its own. The sweep looks every hour."""

    def sweep(target):
        for hour in range(4):
            assert leftovers.sweep_orphans(HOUR * hour) == 0

    during_copy(sweep)
    row = put(bucket, "a")
    assert leftovers.sweep_orphans(HOUR * 4) == 0
    assert b"".join(objects.open_object(row)) == b"hello"


def test_a_locked_file_is_written_by_the_descriptor_that_has_the_lock(bucket, mount, monkeypatch):
    """As CIFS does it: whoever writes by another one is refused."""

    def flock(descriptor, how):
        locked.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        return real_flock(descriptor, how)

    def mandatory(file, mode="r", *args, **options):
        if set(mode) & set("wa+x") and str(file) in locked:
            raise PermissionError(errno.EACCES, "locked", str(file))
        return real_open(file, mode, *args, **options)

    locked, real_flock, real_open = set(), fcntl.flock, open
    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr("builtins.open", mandatory)
    monkeypatch.setattr(io, "open", mandatory)
    row = put(bucket, "a", b"some bytes")
    assert storage.store().path(row.blob.key) in locked
    assert b"".join(objects.open_object(row)) == b"some bytes"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EIO])
def test_a_file_system_without_locks_takes_files_all_the_same_and_it_is_told_once(
    bucket, alice, mount, refused, number, caplog
):
    refused(number)
    with caplog.at_level(logging.WARNING, logger=file_locks.__name__):
        put(bucket, "a")
        upload, _ = uploads.begin(bucket, "b", About(), Announced(5), alice, timezone.now())
        part = Part(upload, 0, None)
        part.write(b"bytes")
        row = uploads.complete(upload, part, timezone.now())
    assert b"".join(objects.open_object(row)) == b"bytes"
    told = [each.getMessage() for each in caplog.records if each.name == file_locks.__name__]
    assert len(told) == 1 and os.strerror(number) in told[0]


def test_without_locks_a_file_that_grows_is_no_orphan_and_one_that_does_not_is(
    bucket, mount, refused, during_copy
):
    refused(errno.ENOLCK)

    def sweep(target):
        for hour in range(4):
            target.write(b"more")
            target.flush()
            assert leftovers.sweep_orphans(HOUR * hour) == 0
        raise SystemExit("killed")

    during_copy(sweep)
    with pytest.raises(SystemExit):
        put(bucket, "a")
    assert [leftovers.sweep_orphans(HOUR * hour) for hour in (4, 5, 6)] == [1, 0, 0]
    assert files()[0] == []


def test_without_locks_what_is_received_is_kept_for_a_day(project, refused):
    refused(errno.ENOLCK)
    received = incoming.new_file(project)
    received.write(b"on its way to a storage elsewhere")
    for hour in range(24):
        assert uploads.sweep(timezone.now(), HOUR * hour) == 0
    assert uploads.sweep(timezone.now(), HOUR * 24) == 1
    received.discard()


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_a_lock_of_another_is_known_by_each_of_its_answers(bucket, alice, refused, number):
    """CIFS says EACCES."""
    upload, _ = uploads.begin(bucket, "b", About(), Announced(), alice, timezone.now())
    refused(number)
    with pytest.raises(Unavailable, match="Another request"):
        Part(upload, 0, None)


def test_a_closed_descriptor_is_a_mistake_and_no_file_system_without_locks(tmp_path, refused):
    refused(errno.EBADF)
    with (tmp_path / "x").open("wb") as file, pytest.raises(OSError, match="Bad file descriptor"):
        file_locks.take(file.fileno())
