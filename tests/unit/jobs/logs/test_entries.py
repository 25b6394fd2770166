"""A log as entries with a time: the same entries wherever one begins to read, and no byte lost."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from jobs.logs import entries, reader, segments
from jobs.models import LogPiece, Run
from tests.harness.examples import examples_here
from tests.unit.console.log_rows import complete, lose, write
from tests.unit.console.views.conftest import cast, project
from tests.unit.console.views.example_rows import a_host, a_job

__all__ = ["cast", "project"]

T = 1_700_000_000.0
SIZE = 64 * 1024


@pytest.fixture
def run(cast, project, monkeypatch):
    monkeypatch.setattr(entries, "LONGEST", 16)
    monkeypatch.setattr(entries, "WINDOW", 50)
    return a_job(project, cast.bob, host=a_host()).runs.get()


def lines(found):
    return [entry.data.decode() for entry in found]


def test_each_line_is_an_entry_with_the_time_of_its_last_byte(run):
    write(run, b"one\ntw", wall=T)
    write(run, b"o\nthree", wall=T + 1)
    found = list(entries.after(run, 0))
    assert [(one.data, one.end, one.at) for one in found] == [(b"one", 4, T), (b"two", 8, T + 1)]
    complete(run)
    assert lines(entries.after(run, 0)) == ["one", "two", "three"]
    assert lines(entries.before(run, T + 9)) == ["three", "two", "one"]


def test_a_gap_is_an_entry_that_says_why_and_loses_no_half_line(run):
    write(run, b"begin\nhalf", wall=T)
    lose(run, 100, "the disk was full")
    write(run, b"rest\nend\n", wall=T + 5)
    found = [(one.data, one.missing) for one in entries.after(run, 0)]
    assert found == [
        (b"begin", ""),
        (b"half", ""),
        (b"", "100 bytes are missing: the disk was full"),
        (b"rest", ""),
        (b"end", ""),
    ]


@pytest.mark.parametrize("size", [1, 50, 1000])
@pytest.mark.parametrize("before", [b"", b"begin\n" * 8 + b"xx", b"begin\n" * 8 + b"half"])
def test_a_gap_of_any_size_loses_no_entry_in_either_direction(run, before, size):
    """Also where the gap begins or ends at the end of a window."""
    if before:
        write(run, before, wall=T)
    lose(run, size)
    write(run, b"rest\nend\n", wall=T + 5)
    lose(run, size)
    complete(run)
    wanted = [part for part in before.decode().split("\n") if part]
    missing = f"{size} bytes are missing: the host's log was cut"
    wanted += [missing, "rest", "end", missing]
    found = list(entries.after(run, 0))
    assert [one.missing or one.data.decode() for one in found] == wanted
    assert list(entries.before(run, T + 9)) == found[::-1]


@pytest.mark.parametrize("direction", [entries.after, entries.before])
def test_a_gap_of_terabytes_is_one_step_and_not_all_behind_it_is_read_at_once(run, direction, monkeypatch):
    write(run, b"begin\nhalf", wall=T)
    lose(run, 1 << 43)
    for number in range(20):
        write(run, b"line\n" * 10, wall=T + 5 + number)
    limits = []

    def read(run, start, limit, read=reader.read):
        assert len(limits) < 200, "it walks through the gap"
        limits.append(limit)
        return read(run, start, limit)

    monkeypatch.setattr(reader, "read", read)
    found = [
        one.missing or one.data.decode()
        for one in direction(run, T + 99 if direction is entries.before else 0)
    ]
    wanted = ["begin", "half", f"{1 << 43} bytes are missing: the host's log was cut", *["line"] * 200]
    assert found == (wanted if direction is entries.after else wanted[::-1])
    assert max(limits) <= entries.WINDOW + 2 * entries.LONGEST


@pytest.mark.parametrize("seed", range(examples_here(6)))
def test_the_entries_are_the_same_wherever_reading_begins(run, seed):
    """Also with lines that are longer than an entry, in rows and in files."""
    draw = random.Random(seed)
    text, at = b"", T
    for _ in range(30):
        part = b"".join(
            bytes(draw.choices(b"abcdef", k=draw.choice((0, 1, 7, 15, 16, 17, 40, 90))))
            + draw.choice((b"\n", b""))
            for _ in range(draw.randrange(1, 4))
        )
        if part:
            at += draw.random()
            write(run, part, wall=at)
            text += part
        if draw.random() < 0.1:
            segments.roll(run.pk)
    complete(run)
    whole = list(entries.after(run, 0))
    # Every byte but the line feeds is in one entry, in order.
    assert b"".join(one.data for one in whole) == text.replace(b"\n", b"")
    assert [one.at for one in whole] == sorted(one.at for one in whole)
    assert all(len(one.data) < 2 * entries.LONGEST for one in whole)
    assert list(entries.before(run, at + 1)) == whole[::-1]
    for _ in range(8):
        since = draw.uniform(T, at)
        wanted = [one for one in whole if one.at >= since]
        assert [one for one in entries.after(run, since) if one.at >= since] == wanted
        until = [one for one in whole if one.at <= since]
        assert [one for one in entries.before(run, since) if one.at <= since] == until[::-1]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_logs_that_are_read_together_have_the_same_entries(run, monkeypatch, most):
    monkeypatch.setattr(entries, "LEAST_WINDOW", 20)
    monkeypatch.setattr(entries, "LEAST_ENTRIES", most)
    for number in range(12):
        write(run, b"\n" * (number % 5) + b"x" * (9 * number % 40) + b"\nend\nrest", wall=T + number)
        if number == 6:
            lose(run, 100)
    complete(run)
    whole = list(entries.after(run, 0))
    assert len(whole) > 40
    assert list(entries.after(run, 0, 10**6)) == whole
    assert list(entries.before(run, T + 99, 10**6)) == whole[::-1]


@pytest.mark.parametrize("newest", [False, True])
def test_many_logs_of_empty_lines_need_little_memory(cast, project, newest):
    run = a_job(project, cast.bob, host=a_host()).runs.get()
    write(run, b"\n" * SIZE, wall=T)
    tracemalloc.start()
    try:
        found = entries.before(run, T + 9, 500) if newest else entries.after(run, 0, 500)
        first = next(found)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert first.end == (SIZE if newest else 1)
    # 500 of them need less than 100 MB.
    assert held < 200_000


def test_several_pieces_of_the_same_moment_are_all_found(run):
    for number in range(5):
        write(run, f"line {number}\n".encode(), wall=T)
    assert len(lines(entries.after(run, T))) == 5
    assert LogPiece.objects.count() == 5 and Run.objects.get().log_stored == 35
