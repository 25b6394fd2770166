"""Recordings of shells: fetched by offsets, proved, kept as files, counted, deleted."""

from __future__ import annotations

import hashlib
import json
import random
import tracemalloc
import zlib
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.links.control_plane import Arrival, RecordingEnd, RecordingPiece
from jobs import services, shells
from jobs.host_sync import intake, wanted
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.logs import segments, storage, verify
from jobs.models import AuditEntry, RecordingState, Run, ShellSession
from jobs.models import RecordingPiece as Row
from jobs.projects import log_storage
from jobs.recordings import policy, store
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import settle

pytestmark = pytest.mark.django_db

MB = 1 << 20
KEY = "0123456789abcdef" * 2
CAST = b"".join(json.dumps([n / 10, "o", f"line {n}\r\n"]).encode() + b"\n" for n in range(5000))
DIGEST = hashlib.sha256(CAST).hexdigest()


@pytest.fixture
def host(add_host):
    return add_host()


@pytest.fixture
def run(host, submit, control_plane):
    document = spec()
    document["jobSpec"]["enableWebAccess"] = True
    submit(document)
    settle(control_plane, host)
    return Run.objects.select_related("job__project", "host", "replica").get()


@pytest.fixture
def session(run, alice):
    return shells.record_kept(run, alice, "127.0.0.1", shells.Kept(KEY, 1800, ""), timezone.now())


@pytest.fixture
def send(host, run):
    def send(*reports, token=7):
        arrivals = [Arrival(run.pk, report) for report in reports]
        return intake.take(host.row.pk, token, arrivals, timezone.now(), UnreadableFrames())

    return send


def piece(start, end, z=True, data=None):
    raw = CAST[start:end] if data is None else data
    return RecordingPiece(KEY, start, end, z, zlib.compress(raw) if z else raw)


def end(digest=DIGEST):
    return RecordingEnd(KEY, len(CAST), digest)


def test_pieces_of_many_shells_take_few_statements(run, alice, send):
    def statements(count):
        keys = [f"{count:016x}{number:016x}" for number in range(count)]
        for key in keys:
            shells.record_kept(run, alice, "127.0.0.1", shells.Kept(key, 1800, ""), timezone.now())
        pieces = [replace(piece(start, start + 100), shell=key) for key in keys for start in (0, 100)]
        with CaptureQueriesContext(connection) as found:
            send(*pieces)
        stored = ShellSession.objects.filter(recording__in=keys).values_list("recording_stored", flat=True)
        assert list(stored) == [200] * count
        return len(found)

    assert statements(30) == statements(2)


def close(session):
    shells.record_closed(session, "The shell has ended.", timezone.now())


def kept(session):
    store.keep_complete(timezone.now())
    session.refresh_from_db()
    return b"".join(store.stream(session))


def pulls(host, run):
    return wanted.wanted(host.row.pk)[run.pk].recordings


def test_pieces_are_stored_once_wherever_they_are_cut(send, session, host, run):
    assert pulls(host, run) == ((KEY, 0),)
    send(piece(0, 1000), piece(0, 1000), piece(1000, 1001), piece(2000, 3000), piece(500, 1500))
    assert pulls(host, run) == ((KEY, 1001),)
    send(piece(1001, 90_000, z=False), piece(90_000, len(CAST)))
    assert b"".join(store.stream(session)) == CAST
    send(end())
    assert pulls(host, run) == (), "nothing more is asked for"
    assert kept(session) == CAST and session.recording_state == RecordingState.WHOLE
    assert not Row.objects.exists() and storage.exists(session.recording_file)
    told = AuditEntry.objects.get(what="shell.recording")
    assert told.after == {"state": "whole", "bytes": len(CAST), "sha256": DIGEST}


def test_a_piece_that_cannot_be_read_is_asked_for_again(send, session, host, run):
    bomb = zlib.compress(bytes(50_000_000))
    send(RecordingPiece(KEY, 0, 100, True, b"no zlib"), RecordingPiece(KEY, 0, 100, True, bomb[:400]))
    assert Row.objects.count() <= 1 and all(row.end <= 100 for row in Row.objects.all())
    send(RecordingPiece(KEY, 100, 300, True, zlib.compress(b"short")))
    assert pulls(host, run)[0][1] in (0, 100)


def test_a_recording_that_grows_without_end_is_cut(send, session, host, run, monkeypatch):
    monkeypatch.setattr(intake.recordings, "MAX_BYTES", 2000, raising=False)
    send(piece(0, 1000), piece(1000, 2000), piece(2000, 2001), end())
    assert pulls(host, run) == (), "its rest is not asked for"
    assert kept(session) == CAST[:2000] and session.recording_state == RecordingState.CUT


def test_a_recording_is_in_memory_once_while_it_is_kept(session):
    raw = random.Random(1).randbytes(MB)
    for at in range(0, 16 * MB, MB):
        Row.objects.create(session=session, start=at, end=at + MB, data=zlib.compress(raw, 0))
    ShellSession.objects.update(recording_stored=16 * MB, recording_size=16 * MB)
    tracemalloc.start()
    try:
        store.keep_complete(timezone.now())
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not Row.objects.exists() and most < 30 * MB


def test_a_dispatcher_that_lost_the_host_stores_nothing(send, session):
    assert not send(piece(0, 100), token=6).current
    assert not Row.objects.exists()


def test_what_differs_from_the_host_and_what_has_no_end_are_told(send, session, run, alice):
    send(piece(0, len(CAST)), end(digest="0" * 64))
    assert kept(session) == CAST and session.recording_state == RecordingState.DIFFERS
    other = shells.record_kept(run, alice, "", shells.Kept("f" * 32, 1800, ""), timezone.now())
    cut = RecordingPiece("f" * 32, 0, 500, False, CAST[:500])
    send(cut, RecordingEnd("f" * 32, 500, ""))
    store.keep_complete(timezone.now())
    other.refresh_from_db()
    assert other.recording_state == RecordingState.COMING, (
        "its shell is open: the host may be about to write more"
    )
    close(other)
    send(RecordingEnd("f" * 32, 500, ""))
    assert kept(other) == CAST[:500] and other.recording_state == RecordingState.CUT


def test_a_shell_that_never_opened_has_no_recording(send, session):
    close(session)
    send(RecordingEnd(KEY, 0, ""))
    assert kept(session) == b"" and session.recording_state == RecordingState.NONE


def test_the_host_keeps_the_run_until_its_recordings_are_here(send, session, host, run, control_plane):
    services.cancel(run.job, "alice", timezone.now())
    settle(control_plane, host)
    verify.verify_logs([run.pk], timezone.now())
    settle(control_plane, host)
    run.refresh_from_db()
    assert run.phase == "closed" and run.forgotten_at is None and run.prove_due_at is None
    close(session)
    send(piece(0, len(CAST)), end())
    assert not wanted.wanted(host.row.pk)[run.pk].forget, "it is not proved yet"
    kept(session)
    assert wanted.wanted(host.row.pk)[run.pk].forget
    settle(control_plane, host)
    run.refresh_from_db()
    assert run.forgotten_at is not None


def test_a_crash_between_file_and_row_leaves_the_recording_and_an_orphan(send, session, run, monkeypatch):
    send(piece(0, len(CAST)), end())
    before = len(list(storage.files()))

    def dies(*args, **more):
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(store.audit, "record", dies)
        kept(session)
    assert session.recording_state == RecordingState.COMING and len(list(storage.files())) == before + 1
    assert kept(session) == CAST and len(list(storage.files())) == before + 2
    monkeypatch.setattr(segments, "ORPHAN_AFTER_S", 0.0)
    segments.sweep_orphans(1.0)
    assert [name for name in storage.files() if run.pk in name] == [session.recording_file]
    assert b"".join(store.stream(session)) == CAST


@pytest.mark.parametrize("read", [0, 1, 2, 3])
def test_a_recording_that_is_kept_while_somebody_reads_it_is_read_to_its_end(send, session, read):
    send(piece(0, 1000), piece(1000, 90_000), piece(90_000, len(CAST)), end())
    stream = store.stream(session)
    seen = [next(stream) for _ in range(read)]
    store.keep_complete(timezone.now())
    assert not Row.objects.exists()
    assert b"".join([*seen, *stream]) == CAST


def test_a_file_of_zeros_is_unpacked_a_little_at_a_time(session):
    raw = bytes(8 << 20)
    session.recording_file = storage.write("1/run/shell-zeros.cast.z", zlib.compress(raw, 9))
    pieces = list(store.stream(session))
    assert b"".join(pieces) == raw and max(map(len, pieces)) <= store.READ_BYTES


def test_the_sweep_of_orphans_asks_about_recordings_for_their_files_only(send, session):
    with CaptureQueriesContext(connection) as asked:
        segments._without_row(["1/run/0000000000000000-0000000000000009"])
    assert not [one for one in asked if "shellsession" in one["sql"]]
    send(piece(0, len(CAST)), end())
    kept(session)
    lost = session.recording_file.replace("shell-", "shell-f")
    assert segments._without_row([session.recording_file, lost]) == [lost]


@pytest.fixture
def others(run, alice):
    """Recordings of other shells, whose hosts have sent everything."""
    made = []
    for key in "abc":
        opened = shells.record_kept(run, alice, "", shells.Kept(key * 32, 1800, ""), timezone.now())
        Row.objects.create(session=opened, start=0, end=1000, data=zlib.compress(CAST[:1000]))
        ShellSession.objects.filter(pk=opened.pk).update(recording_stored=1000, recording_size=1000)
        made.append(opened)
    return made


def states():
    return sorted(ShellSession.objects.order_by().values_list("recording_state", flat=True))


def test_recordings_are_kept_for_a_slice_of_time_and_none_twice(others, monkeypatch):
    times = iter([0.0, 1.0, 2.5])
    store.keep_complete(timezone.now(), lambda: next(times))
    assert states() == ["coming", "cut", "cut"]
    first = ShellSession.objects.get(recording_state=RecordingState.COMING)
    real, tried = store._keep, []

    def keep(session, now):
        tried.append(session.pk)
        real(session, now)
        if len(tried) == 1:  # another sweep keeps all others at this moment
            store.keep_complete(now)

    ShellSession.objects.exclude(pk=first.pk).update(recording_state=RecordingState.COMING)
    monkeypatch.setattr(store, "_keep", keep)
    store.keep_complete(timezone.now())
    assert sorted(tried) == sorted(each.pk for each in others)


def test_a_recording_that_cannot_be_read_stops_no_other_and_is_tried_once(send, session, others):
    send(piece(0, 1000), piece(1000, 2000), piece(2000, len(CAST)), end())
    Row.objects.filter(session=session, start=1000).update(data=b"no zlib")
    assert kept(session) == CAST[:1000]
    assert (session.recording_state, session.recording_stored) == (RecordingState.CUT, 1000)
    assert states() == ["cut"] * 4 and not Row.objects.exists()


def test_a_recording_that_cannot_be_written_stops_no_other(others, monkeypatch):
    def write(key, data, real=storage.write):
        if "a" * 32 in key:
            raise ValueError("no such name")
        return real(key, data)

    monkeypatch.setattr(store.storage, "write", write)
    store.keep_complete(timezone.now())
    assert states() == ["coming", "cut", "cut"]


def test_a_flipped_byte_in_a_file_is_seen(send, session):
    send(piece(0, len(CAST)), end())
    kept(session)
    path = storage.local_path(session.recording_file)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises((OSError, zlib.error)):
        b"".join(store.stream(session))


def test_recordings_count_in_the_limit_of_logs(send, session, run, monkeypatch):
    project = run.job.project
    before = log_storage.stored_bytes([project.pk]).get(project.pk, 0)
    send(piece(0, 1000))
    assert log_storage.stored_bytes([project.pk])[project.pk] == before + 1000
    monkeypatch.setattr(log_storage, "held_runs", lambda: {run.pk})
    send(piece(1000, 2000))
    session.refresh_from_db()
    assert session.recording_stored == 1000, "its host keeps the rest"


@pytest.mark.parametrize("complete", [True, False])
def test_recordings_are_deleted_when_their_time_is_over(send, session, complete):
    send(piece(0, len(CAST)), *([end()] if complete else []))
    close(session)
    if complete:
        kept(session)
    now = timezone.now()
    store.expire(now + timedelta(days=policy.kept_days() - 1))
    session.refresh_from_db()
    assert session.recording_stored
    store.expire(now + timedelta(days=policy.kept_days(), seconds=1))
    session.refresh_from_db()
    assert (session.recording_state, session.recording_stored) == (RecordingState.DELETED, 0)
    assert b"".join(store.stream(session)) == b"" and not Row.objects.exists()


def test_a_deleted_job_takes_its_recordings_along(send, session, run, host, control_plane):
    send(piece(0, len(CAST)))
    services.cancel(run.job, "alice", timezone.now())
    settle(control_plane, host)
    close(session)
    services.delete(run.job, "alice", timezone.now())
    session.refresh_from_db()
    assert session.recording_state == RecordingState.DELETED and not Row.objects.exists()
    send(piece(0, 100))
    assert not Row.objects.exists()
    assert wanted.wanted(host.row.pk).get(run.pk) is None or wanted.wanted(host.row.pk)[run.pk].forget


@pytest.mark.parametrize(
    ("usual", "chosen", "recorded"),
    [(True, None, True), (True, False, False), (False, None, False), (False, True, True)],
)
def test_a_project_may_differ_from_the_deployment(run, alice, settings, usual, chosen, recorded):
    settings.TRAINYARD = replace(settings.TRAINYARD, record_shells=usual)
    run.job.project.record_shells = chosen
    kept = shells.record_kept(run, alice, "", shells.Kept("e" * 32, 1800, ""), timezone.now())
    plain = shells.record_opened(run, alice, "", timezone.now(), "d" * 32)
    assert (kept.recording, plain.recording) == (("e" * 32, "d" * 32) if recorded else ("", ""))
    after = AuditEntry.objects.filter(what="shell.open").values_list("after", flat=True)
    assert [one["recorded"] for one in after] == [recorded, recorded]
    assert ShellSession.objects.filter(recording_state=RecordingState.COMING).count() == 2 * recorded
