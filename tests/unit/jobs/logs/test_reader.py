"""Read, roll and join logs: a time, an end and a gap are found wherever they lie."""

from __future__ import annotations

import random
import zlib

import pytest
from django.utils import timezone

from agents.links.control_plane import Arrival, Frame, Gap
from jobs.host_sync import intake
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.logs import pieces, reader, segments, storage
from jobs.logs.pieces import Block, Unreadable, merged
from jobs.models import LogGap, LogPiece, LogSegment, Run
from tests.unit.jobs.fake_hosts import frame, settle

pytestmark = pytest.mark.django_db
SEGMENT = 600  # as of the fixture `small`


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
    found = [reader.offset_at(run, 1000.0 + second) for second in (-5, 0, 3.5, 7, 99)]
    assert found == [0, 0, 300, 700, 900]
    assert reader.read(run, 300, 1).data == b"3" and reader.read(run, 900, 500).data.startswith(b"9 ")


def test_the_end_of_a_long_log_is_one_lookup(logged, django_assert_max_num_queries):
    run, give = logged
    give(*lines(0, 400))
    while segments.roll(run.pk):
        pass
    assert LogSegment.objects.count() == 66
    with django_assert_max_num_queries(5):
        assert len(reader.read(run, run.log_stored - 250, 1000).data) == 250


def test_of_two_workers_that_roll_the_same_range_one_gives_up(logged, monkeypatch):
    run, give = logged
    give(*lines(0, 7))
    honest = storage.write

    def write(key, data):
        monkeypatch.setattr(storage, "write", honest)
        segments.roll(run.pk)
        return honest(key, data)

    monkeypatch.setattr(storage, "write", write)
    segments.roll(run.pk)
    assert {segment.key for segment in LogSegment.objects.all()} >= {
        k for k in storage.files() if run.pk in k
    }
    assert LogSegment.objects.count() == 1 and len(b"".join(reader.stream(run, 0, 700))) == 700


def test_a_stream_ends_where_it_was_asked_to_end_in_a_gap_too(logged):
    run, give = logged
    first, _, third = lines(0, 3)
    give(first, Gap(100, 200, "punched"), third)
    assert b"".join(reader.stream(run, 0, 190)) == b"".join(reader.stream(run, 0, 100)) == first_raw(first)
    assert len(b"".join(reader.stream(run, 0, 300))) == 200
    assert reader.read(run, 120, 10).gaps == (reader.MissingRange(120, 200, "punched"),)


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
    assert reader.size(run) == 200 and len(b"".join(reader.stream(run, 0, 200))) == 100


def test_a_lost_segment_file_is_a_gap_that_says_so(logged):
    run, give = logged
    give(*lines(0, 14))
    while segments.roll(run.pk):
        pass
    first, second = LogSegment.objects.order_by("start")
    give(*lines(14, 1))
    storage.remove(second.key)
    whole = b"".join(reader.stream(run, 0, 1500))
    assert len(whole) == 1500 - (second.end - second.start)
    # The bytes before the gap are read first, then the gap, from any offset in it, then the bytes after it.
    assert reader.read(run, 0, 9999).end == first.end
    for offset in (second.start, second.start + 10):
        chunk = reader.read(run, offset, 9999)
        assert (chunk.data, chunk.end) == (b"", second.end)
        assert chunk.gaps == (reader.MissingRange(offset, second.end, reader.NO_FILE),)
    assert reader.read(run, second.end, 9999).end == 1500


def test_small_pieces_become_few(logged, monkeypatch):
    run, give = logged
    monkeypatch.setattr(segments, "MANY_PIECES", 50)
    give(*lines(0, 60, size=10))
    before = b"".join(reader.stream(run, 0, 600))
    assert segments.crowded(5) == [run.pk]
    segments.compact(run.pk)
    assert LogPiece.objects.count() == 1 and b"".join(reader.stream(run, 0, 600)) == before
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
        assert b"".join(reader.stream(run, 0, run.log_stored)) == expected
    assert run.log_stored - Run.objects.get().log_rolled < SEGMENT


def test_pieces_that_are_joined_while_they_are_rolled_lose_no_byte(logged, monkeypatch):
    """A joined piece may reach beyond the end of the segment that is being written to disk."""
    run, give = logged
    give(*lines(0, 10))
    write = storage.write

    def join_first(key, data):
        segments.compact(run.pk)
        return write(key, data)

    monkeypatch.setattr(storage, "write", join_first)
    before = b"".join(reader.stream(run, 0, 1000))
    segments.roll(run.pk)
    assert b"".join(reader.stream(run, 0, 1000)) == before
    of_run = {key for key in storage.files() if key.startswith(f"{run.job_id}/")}
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
    assert not LogSegment.objects.exists() and reader.read(run, 0, 9).data == b""


def test_an_unreadable_frame_is_a_gap_after_three_tries(logged):
    run, _ = logged
    tries, bad = UnreadableFrames(), Frame(0, 40, True, b"not zlib")
    answers = [intake.take(run.host_id, 7, [Arrival(run.pk, bad)], timezone.now(), tries) for _ in range(3)]
    assert [told.pulls for told in answers] == [{run.pk: 0}, {run.pk: 0}, {}]
    assert LogGap.objects.get().end == 40 == answers[2].acks[run.pk]


def test_a_zip_bomb_is_refused_as_a_frame():
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


def test_with_too_little_free_disk_the_host_keeps_its_bytes(add_host, submit, control_plane, monkeypatch):
    host = add_host()
    submit()
    monkeypatch.setattr(storage, "is_disk_low", lambda: True)
    settle(control_plane, host)
    (run,) = host.runs
    assert control_plane.wanted_runs(host.row.pk)[run].pull_from is None
    taken = host.report(control_plane, [Arrival(run, frame(0, b"abc"))])
    assert not taken.acks and not taken.pulls and not LogPiece.objects.exists()
    host.end(control_plane, run, exit_code=0)
    monkeypatch.setattr(storage, "is_disk_low", lambda: False)
    settle(control_plane, host)
    assert (
        reader.status(Run.objects.get()).complete
        and reader.read(Run.objects.get(), 0, 99).data == host.runs[run].log
    )
