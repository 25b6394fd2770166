"""The log store: whatever comes, in whatever order, the stored bytes are the host's, or a gap says so."""

from __future__ import annotations

import os
import random
import time
import zlib
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agents.desk import Arrival, Fact, Frame, Gap, LogEnd
from jobs import intake, logs, pieces, proving, segments, storage
from jobs.intake import Tries
from jobs.models import LogGap, LogPiece, LogSegment, Run
from jobs.pieces import Block, Unreadable, merged
from tests.jobs.paper import InlineDesk, digest_of, frame, settle

pytestmark = pytest.mark.django_db
SEGMENT = 600
places = st.floats(0, 1)


@pytest.fixture
def small(monkeypatch, settings, request):
    """Segments of 600 bytes instead of 8 MiB; of 60 for the machine, which likes small things."""
    segment = getattr(request, "param", SEGMENT)
    monkeypatch.setattr(storage, "MB", 1)
    monkeypatch.setattr(segments, "SMALL_TAIL", 100)
    settings.TRAINYARD = replace(settings.TRAINYARD, segment_mb=segment)


class LogStore(RuleBasedStateMachine):
    """The model is a bytes object, and for each of its bytes whether the host lost it."""

    make_run = None  # set by the test below

    @initialize()
    def begin(self):
        self.host, self.run = type(self).make_run()
        self.file, self.lost = b"", set()
        self.stored, self.torn = 0, False
        self.desks = [InlineDesk(), InlineDesk()]

    def take(self, *whats):
        """By the one dispatcher or the other: what they remember of the log may be old."""
        self.desks.reverse()
        return self.desks[0].take(self.host.row.pk, 7, [Arrival(self.run.pk, what) for what in whats])

    def stores_to(self, end):
        """The model's compare-and-set."""
        self.stored = max(self.stored, end)

    @rule(data=st.binary(min_size=1, max_size=30), times=st.integers(1, 20))
    def the_replica_prints(self, data, times):
        self.file += data * times

    @precondition(lambda self: self.stored < len(self.file))
    @rule(size=st.integers(1, 400), z=st.booleans(), back=st.integers(0, 50))
    def the_next_frame_comes(self, size, z, back):
        start = max(0, self.stored - back)
        told = self.take(frame(start, self.file[start : self.stored + size], z))
        self.stores_to(min(len(self.file), self.stored + size))
        assert told.acks == {self.run.pk: self.stored} and not told.pulls

    @precondition(lambda self: self.file)
    @rule(ends=st.tuples(places, places), z=st.booleans())
    def any_frame_comes(self, ends, z):
        start, end = sorted(round(place * len(self.file)) for place in ends)
        told = self.take(frame(start, self.file[start:end], z))
        hole = start > self.stored and end > start
        if not hole and end > start:
            self.stores_to(end)
        assert told.pulls == ({self.run.pk: self.stored} if hole else {})

    @precondition(lambda self: self.stored < len(self.file))
    @rule(size=st.integers(1, 300), ahead=st.integers(-30, 5))
    def the_host_lost_a_range(self, size, ahead):
        start = max(0, self.stored + ahead)
        end = min(len(self.file), start + size)
        told = self.take(Gap(start, end, "punched"))
        if end <= start:
            return
        if start > self.stored:
            assert told.pulls == {self.run.pk: self.stored}
        elif end > self.stored:
            self.lost |= set(range(self.stored, end))
            self.stores_to(end)

    @rule(junk=st.binary(max_size=30), z=st.booleans())
    def a_broken_frame_comes(self, junk, z):
        """It is asked for again; three times in a row the same, and its range is a gap."""
        broken = Frame(self.stored, self.stored + 31, z, junk)
        self.desks = [InlineDesk(), InlineDesk()]
        for _ in range(2):
            assert self.take(broken).pulls == {self.run.pk: self.stored}

    @rule()
    def rolled(self):
        segments.roll(self.run.pk)

    @rule()
    def rolling_dies_between_file_and_row(self):
        real = segments._point_to
        segments._point_to = lambda *args: (_ for _ in ()).throw(KeyboardInterrupt)
        try:
            segments.roll(self.run.pk)
        except KeyboardInterrupt:
            pass
        finally:
            segments._point_to = real

    @rule()
    def joined(self):
        segments.compact(self.run.pk)

    @rule(place=places, limit=st.integers(1, 300))
    def somebody_reads(self, place, limit):
        start = round(place * (len(self.file) + 3))
        chunk = logs.read(self.run, start, limit)
        assert chunk.end - chunk.start == len(chunk.data) <= limit
        assert chunk.data == self.file[chunk.start : chunk.end]
        assert set(range(start, min(chunk.start, self.stored))) <= self.lost
        if start < self.stored:
            assert chunk.data or chunk.gaps
        assert all(chunk.start <= offset < chunk.end for offset, _ in chunk.at)

    @invariant()
    def stored_bytes_are_the_hosts(self):
        if not hasattr(self, "run"):
            return
        assert logs.size(self.run) == self.stored
        expected = bytes(self.file[i] for i in range(self.stored) if i not in self.lost)
        assert b"".join(logs.stream(self.run, 0, self.stored)) == expected

    @invariant()
    def every_offset_is_covered_once(self):
        if not hasattr(self, "run"):
            return
        spans = list(LogPiece.objects.filter(run=self.run).values_list("start", "end"))
        spans += [(e[0], e[1]) for s in LogSegment.objects.filter(run=self.run) for e in s.index]
        spans += list(LogGap.objects.filter(run=self.run).values_list("start", "end"))
        position = 0
        for start, end in sorted(spans):
            assert start == position < end
            position = end
        assert position == self.stored

    def teardown(self):
        if not hasattr(self, "run"):
            return
        digest = digest_of(self.file)
        document = {"phase": "closed", "log": {"size": len(self.file), "final": True, "digest": digest}}
        rest = [frame(self.stored, self.file[self.stored :])] if self.stored < len(self.file) else []
        self.take(Fact(document), *rest, LogEnd(len(self.file), digest))
        while segments.to_roll(100):
            segments.roll(self.run.pk)
        proving.prove([self.run.pk], timezone.now())
        status = logs.status(self.run)
        assert Run.objects.get(pk=self.run.pk).prove_due_at is None
        assert status.complete and status.matches is (None if self.lost else True), status
        assert sum(gap.end - gap.start for gap in status.gaps) == len(self.lost)
        segments.sweep_orphans(timezone.now() + timedelta(hours=2))
        later = timezone.now() + timedelta(hours=2)
        assert set(storage.files(later)) == set(LogSegment.objects.values_list("key", flat=True))


@pytest.mark.parametrize("small", [60], indirect=True)
def test_the_store_holds_what_the_host_printed(add_host, submit, desk, small):
    host = add_host(cpus=9999)

    def make_run():
        job = submit()
        return host, Run.objects.get(job=job)

    machine = type("Machine", (LogStore,), {"make_run": staticmethod(make_run)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            # Each step is many statements: shrinking a failure would outlast the suite's patience.
            phases=[Phase.generate],
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture
def logged(add_host, submit, small):
    """A run whose log of ten lines is here, a mark on each."""
    host = add_host()
    submit()
    run = Run.objects.get()

    def give(*whats):
        told = intake.take(host.row.pk, 7, [Arrival(run.pk, what) for what in whats], timezone.now(), Tries())
        run.refresh_from_db()
        return told

    return run, give


def lines(first, count, size=100):
    """Frames of one line each, printed one second apart."""
    return [
        frame(n * size, (b"%d " % n).ljust(size, b"."), at=((n * size, 1000.0 + n),))
        for n in range(first, first + count)
    ]


@pytest.mark.parametrize("rolled", [False, True])
def test_a_moment_is_found_wherever_it_lies(logged, rolled):
    run, give = logged
    give(*lines(0, 10))
    if rolled:
        segments.roll(run.pk)
        assert LogSegment.objects.get().end == 600
    found = [logs.offset_at(run, 1000.0 + second) for second in (-5, 0, 3.5, 7, 99)]
    assert found == [0, 0, 300, 700, 900]
    assert logs.read(run, 300, 1).data == b"3" and logs.read(run, 900, 500).data.startswith(b"9 ")


def test_the_end_of_a_long_log_is_one_lookup(logged, django_assert_max_num_queries):
    run, give = logged
    give(*lines(0, 400))
    while segments.roll(run.pk):
        pass
    assert LogSegment.objects.count() == 66
    with django_assert_max_num_queries(5):
        assert len(logs.read(run, run.log_stored - 250, 1000).data) == 250


def test_of_two_that_roll_the_same_range_one_gives_up(logged, monkeypatch):
    run, give = logged
    give(*lines(0, 7))
    honest = storage.write

    def write(key, data):
        monkeypatch.setattr(storage, "write", honest)
        segments.roll(run.pk)
        return honest(key, data)

    monkeypatch.setattr(storage, "write", write)
    segments.roll(run.pk)
    later = timezone.now() + timedelta(hours=2)
    assert {segment.key for segment in LogSegment.objects.all()} >= {
        k for k in storage.files(later) if run.pk in k
    }
    assert LogSegment.objects.count() == 1 and len(b"".join(logs.stream(run, 0, 700))) == 700


def test_a_stream_ends_where_it_was_asked_to_end_in_a_gap_too(logged):
    run, give = logged
    first, _, third = lines(0, 3)
    give(first, Gap(100, 200, "punched"), third)
    assert b"".join(logs.stream(run, 0, 190)) == b"".join(logs.stream(run, 0, 100)) == first_raw(first)
    assert len(b"".join(logs.stream(run, 0, 300))) == 200
    assert logs.read(run, 120, 10).gaps == (logs.Hole(120, 200, "punched"),)


def first_raw(frame):
    return zlib.decompress(frame.data)


def test_a_log_that_is_cut_again_and_again_is_one_gap_for_as_long_as_nothing_comes_between(logged):
    run, give = logged
    [first] = lines(0, 1)
    give(first, Gap(100, 101, "truncated"), Gap(101, 102, "truncated"))
    give(Gap(102, 110, "truncated"))
    give(Gap(110, 120, "budget"), Gap(120, 200, "budget"))
    told = [(gap.start, gap.end, gap.reason) for gap in run.gaps.all()]
    assert told == [(100, 110, "truncated"), (110, 200, "budget")]
    assert logs.size(run) == 200 and len(b"".join(logs.stream(run, 0, 200))) == 100


def test_a_file_that_is_gone_is_a_gap_that_says_so(logged):
    run, give = logged
    give(*lines(0, 14))
    while segments.roll(run.pk):
        pass
    first, second = LogSegment.objects.order_by("start")
    give(*lines(14, 1))
    storage.remove(second.key)
    whole = b"".join(logs.stream(run, 0, 1500))
    assert len(whole) == 1500 - (second.end - second.start)
    # What lies before it is read first; then the hole, from wherever it is looked at; then what lies behind.
    assert logs.read(run, 0, 9999).end == first.end
    for offset in (second.start, second.start + 10):
        chunk = logs.read(run, offset, 9999)
        assert (chunk.data, chunk.end) == (b"", second.end)
        assert chunk.gaps == (logs.Hole(offset, second.end, logs.NO_FILE),)
    assert logs.read(run, second.end, 9999).end == 1500


def test_small_pieces_become_few(logged, monkeypatch):
    run, give = logged
    monkeypatch.setattr(segments, "MANY_PIECES", 50)
    give(*lines(0, 60, size=10))
    before = b"".join(logs.stream(run, 0, 600))
    assert segments.crowded(5) == [run.pk]
    segments.compact(run.pk)
    assert LogPiece.objects.count() == 1 and b"".join(logs.stream(run, 0, 600)) == before
    assert len(LogPiece.objects.get().at) <= 30


def test_a_gap_longer_than_a_segment_hides_no_byte(logged):
    run, give = logged
    kept = [*lines(0, 3), *lines(50, 20)]
    give(*kept[:3], Gap(300, 5000, "budget"), *kept[3:])
    for more in ([], lines(70, 10), lines(80, 4)):
        give(*more)
        kept += more
        while segments.roll(run.pk):
            pass
        expected = b"".join(zlib.decompress(each.data) for each in kept)
        assert b"".join(logs.stream(run, 0, run.log_stored)) == expected
    assert run.log_stored - Run.objects.get().log_rolled < SEGMENT


def test_pieces_that_are_joined_while_they_are_rolled_lose_no_byte(logged, monkeypatch):
    """A joined piece may reach over the end of the segment that is on its way to the disk."""
    run, give = logged
    give(*lines(0, 10))
    write = storage.write

    def join_first(key, data):
        segments.compact(run.pk)
        return write(key, data)

    monkeypatch.setattr(storage, "write", join_first)
    before = b"".join(logs.stream(run, 0, 1000))
    segments.roll(run.pk)
    assert b"".join(logs.stream(run, 0, 1000)) == before
    later = timezone.now() + timedelta(hours=2)
    of_run = {key for key in storage.files(later) if key.startswith(f"{run.job_id}/")}
    assert of_run == set(LogSegment.objects.values_list("key", flat=True))


def test_a_log_that_is_deleted_while_it_is_rolled_stays_deleted(logged, monkeypatch):
    run, give = logged
    give(*lines(0, 10))
    write = storage.write

    def delete_first(key, data):
        segments.purge([run.pk])
        return write(key, data)

    monkeypatch.setattr(storage, "write", delete_first)
    assert segments.roll(run.pk) is False
    assert not LogSegment.objects.exists() and logs.read(run, 0, 9).data == b""


def test_what_a_host_can_send_no_more_of_is_a_gap_after_three_tries(logged):
    run, _ = logged
    tries, bad = Tries(), Frame(0, 40, True, b"not zlib")
    answers = [intake.take(run.host_id, 7, [Arrival(run.pk, bad)], timezone.now(), tries) for _ in range(3)]
    assert [told.pulls for told in answers] == [{run.pk: 0}, {run.pk: 0}, {}]
    assert LogGap.objects.get().end == 40 == answers[2].acks[run.pk]


def test_a_bomb_is_no_frame():
    bomb = zlib.compress(b"\0" * (64 << 20), 9)
    with pytest.raises(Unreadable):
        pieces.block_of(Frame(0, 1000, True, bomb))
    with pytest.raises(Unreadable):
        pieces.block_of(Frame(0, 64 << 20, True, bomb))
    with pytest.raises(Unreadable):
        pieces.block_of(Frame(0, 3, True, zlib.compress(b"abc") + b"more"))


def test_joining_changes_no_byte():
    dice, blocks, position = random.Random(5), [], 0
    for size in [10] * 50 + [70_000, 5, 5] + [30_000] * 5:
        data = dice.randbytes(size // 2) * 2
        z, payload = pieces.deflate(data)
        blocks.append(Block(position, position + len(data), z, payload, ((position, 1.0),)))
        position += len(data) + dice.choice([0, 0, 0, 7])
    joined = merged(blocks)
    assert len(joined) < len(blocks) and joined[0].start == 0
    assert b"".join(block.raw() for block in joined) == b"".join(block.raw() for block in blocks)
    assert all(block.end - block.start == len(block.raw()) for block in joined)


def test_a_log_that_differs_is_shown_and_stays_on_the_host(add_host, submit, desk):
    host = add_host()
    submit()
    settle(desk, host)
    run = Run.objects.get()
    host.end(desk, run.pk, exit_code=0)
    honest = host.runs[run.pk].log
    host.runs[run.pk].log = b"H" + honest[1:]
    settle(desk, host)
    Run.objects.update(log_digest_host=digest_of(honest + b"?"))
    proving.prove([run.pk], timezone.now())
    assert logs.status(run).matches is False
    settle(desk, host)
    assert run.pk in host.runs and Run.objects.get().forgotten_at is None


def test_a_large_log_is_proved_a_bit_at_a_time(logged, monkeypatch):
    run, give = logged
    monkeypatch.setattr(proving, "BLOCK", 1000)
    data = os.urandom(4500)
    give(frame(0, data))
    give(Fact({"phase": "closed", "log": {"size": 4500, "final": True, "digest": "?"}}))
    monkeypatch.setattr(proving, "SLICE_S", 0)
    for step in range(1, 5):
        proving._prove(Run.objects.get(), time.monotonic() - 1, timezone.now())
        assert len(Run.objects.get().log_proof) == 32 * step
    proving._prove(Run.objects.get(), time.monotonic() - 1, timezone.now())
    digests = b"".join(proving.hashlib.sha256(data[i : i + 1000]).digest() for i in range(0, 4500, 1000))
    assert logs.status(run).digest_here == "blocks8m:" + proving.hashlib.sha256(digests).hexdigest()
    assert Run.objects.get().prove_due_at is None


def test_short_logs_are_proved_together_and_one_that_is_broken_by_itself(
    add_host, submit, desk, django_assert_max_num_queries, caplog
):
    host = add_host(cpus=16)
    for _ in range(12):
        submit()
    settle(desk, host)
    for run in list(host.runs):
        host.end(desk, run, exit_code=0)
    settle(desk, host)
    runs = proving.due(timezone.now(), 20)
    LogPiece.objects.filter(run=runs[0]).update(data=b"junk", z=True)
    LogGap.objects.create(run_id=runs[1], start=0, end=1, reason="test")
    with django_assert_max_num_queries(25):
        proving.prove(runs, timezone.now())
    told = {run.pk: (run.log_digest_here, run.log_digest_host) for run in Run.objects.filter(pk__in=runs)}
    assert told[runs[0]][0] == told[runs[1]][0] == "" and "cannot be proved" in caplog.text
    assert all(here == there != "" for here, there in (told[run] for run in runs[2:]))
    assert proving.due(timezone.now(), 20) == []


def test_a_log_that_cannot_be_read_keeps_no_other_from_its_proof(logged, caplog):
    run, give = logged
    give(frame(0, b"abc"), Fact({"phase": "closed", "log": {"size": 3, "final": True, "digest": "x"}}))
    LogPiece.objects.all().delete()
    now = timezone.now()
    assert proving.due(now, 5) == [run.pk]
    proving.prove([run.pk], now)
    assert proving.due(now, 5) == [] and "cannot be proved" in caplog.text
    assert proving.due(now + timedelta(minutes=1), 5) == [run.pk]


def test_below_the_floor_the_host_keeps_its_bytes(add_host, submit, desk, monkeypatch):
    host = add_host()
    submit()
    monkeypatch.setattr(storage, "low", lambda: True)
    settle(desk, host)
    (run,) = host.runs
    assert desk.wanted(host.row.pk)[run].pull_from is None
    taken = host.tell(desk, [Arrival(run, frame(0, b"abc"))])
    assert not taken.acks and not taken.pulls and not LogPiece.objects.exists()
    host.end(desk, run, exit_code=0)
    monkeypatch.setattr(storage, "low", lambda: False)
    settle(desk, host)
    assert (
        logs.status(Run.objects.get()).complete
        and logs.read(Run.objects.get(), 0, 99).data == host.runs[run].log
    )
