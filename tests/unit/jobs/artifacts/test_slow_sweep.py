"""A storage that is slow, or has millions of files, holds up the sweep for some seconds only, and is cleaned yet."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.infra import clock
from agents.infra.clock import Clock
from jobs import sweep
from jobs.artifacts import blobs, leftovers, objects, storage
from jobs.models import Blob, Tick
from tests.unit.jobs.artifacts.conftest import files
from tests.unit.jobs.artifacts.test_blobs import later, put

pytestmark = pytest.mark.django_db
HOUR = 3600.0


@pytest.fixture
def passed(monkeypatch):
    """Seconds that the storage has taken, on top of the time."""
    seconds, real = [0.0], clock.elapsed
    monkeypatch.setattr(clock, "elapsed", lambda: real() + sum(seconds))
    return seconds


@pytest.fixture
def slow(passed, monkeypatch):
    """To remove a file takes so many seconds."""
    remove = storage.remove

    def slow(took_s):
        monkeypatch.setattr(storage, "remove", lambda key: passed.append(took_s) or remove(key))

    return slow


@pytest.fixture
def unneeded(bucket):
    for number in range(9):
        objects.delete_object(put(bucket, f"{number}", b"%d" % number), "alice", timezone.now())


@pytest.fixture
def orphans(bucket, unneeded):
    """Files whose rows have gone."""
    Blob.objects.all().delete()


def test_a_storage_that_removes_slowly_holds_up_the_sweep_for_seconds(unneeded, slow):
    slow(3.0)
    assert [blobs.sweep(later(hours=2)) for _ in range(3)] == [(4, False), (4, False), (1, True)]
    assert files()[0] == []


def test_what_is_left_is_removed_soon_and_not_after_the_whole_period(unneeded, slow):
    slow(3.0)
    at = timezone.now() + timedelta(hours=2)
    left = []
    for minutes in (0, 2, 4):
        sweep.sweep(at + timedelta(minutes=minutes))
        left.append(len(files()[0]))
    assert left == [5, 1, 0]
    assert Tick.objects.get(name=sweep.BLOBS.tick).at >= at + timedelta(minutes=4), (
        "nothing is left, so it waits"
    )


def test_files_that_are_left_over_are_removed_for_seconds_at_a_time(orphans, slow):
    assert leftovers.sweep_orphans(0.0) == 0 and not leftovers.are_looks_open()
    slow(3.0)
    found = [(leftovers.sweep_orphans(HOUR), leftovers.are_looks_open()) for _ in range(3)]
    assert found == [(4, True), (4, True), (1, False)]
    assert files()[0] == []


def test_a_look_through_a_large_storage_goes_on_where_it_stopped(orphans, passed, monkeypatch):
    """Each page of its list takes four seconds."""
    listed, real = [], storage.files

    def pages():
        for key in real():
            passed.append(4.0)
            listed.append(key)
            yield key

    monkeypatch.setattr(leftovers._orphans, "names", pages)
    monkeypatch.setattr(leftovers, "BATCH", 1)
    at = Clock(timezone.now())
    Tick.objects.create(name=sweep.LEFTOVERS.tick, at=at.now())
    for lists in (3, 6, 9):
        sweep.remove_leftovers(at)
        assert len(listed) == lists
        assert Tick.objects.get(name=sweep.LEFTOVERS.tick).at < at.now() - timedelta(minutes=58)
        assert leftovers.are_looks_open()
    Tick.objects.update(at=at.now())
    sweep.remove_leftovers(at)
    assert len(set(listed)) == len(listed) == 9 and not leftovers.are_looks_open()
    assert Tick.objects.get(name=sweep.LEFTOVERS.tick).at > at.now() - timedelta(minutes=1), "in an hour"


def test_what_gets_its_row_while_a_look_stands_still_stays(orphans, slow, project):
    leftovers.sweep_orphans(0.0)
    slow(12.0)
    assert leftovers.sweep_orphans(HOUR) == 1 and leftovers.are_looks_open()
    rows = [
        Blob(project=project, sha256=key[5:69], size=1, crc32c="", key=key, touched_at=timezone.now())
        for key in files()[0]
    ]
    Blob.objects.bulk_create(rows)
    assert [leftovers.sweep_orphans(HOUR) for _ in rows] == [0] * 8
    assert len(files()[0]) == 8


def test_a_look_that_fails_begins_anew(orphans, slow, monkeypatch):
    leftovers.sweep_orphans(0.0)
    slow(12.0)
    assert leftovers.sweep_orphans(HOUR) == 1
    with monkeypatch.context() as away:
        away.setattr(storage, "remove", lambda key: (_ for _ in ()).throw(storage.NotReached()))
        sweep.remove_leftovers(Clock(timezone.now()))
        with pytest.raises(storage.NotReached):
            leftovers.sweep_orphans(HOUR)
        assert not leftovers.are_looks_open()
    assert [leftovers.sweep_orphans(HOUR) for _ in range(9)] == [1] * 8 + [0]
