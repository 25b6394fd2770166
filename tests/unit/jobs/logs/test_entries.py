"""A log as entries with a time: the same entries wherever one begins to read, and no byte lost."""

from __future__ import annotations

import random

import pytest

from jobs.logs import entries, segments
from jobs.models import LogPiece, Run
from tests.unit.console.log_rows import complete, lose, write
from tests.unit.console.views.conftest import cast, project
from tests.unit.console.views.example_rows import a_host, a_job

__all__ = ["cast", "project"]

T = 1_700_000_000.0


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


@pytest.mark.parametrize("seed", range(6))
def test_the_entries_are_the_same_wherever_reading_begins(run, seed):
    """Also with lines that are longer than an entry, in rows and in files."""
    draw = random.Random(seed)
    text, at = b"", T
    for _ in range(40):
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
    for _ in range(15):
        since = draw.uniform(T, at)
        wanted = [one for one in whole if one.at >= since]
        assert [one for one in entries.after(run, since) if one.at >= since] == wanted
        until = [one for one in whole if one.at <= since]
        assert [one for one in entries.before(run, since) if one.at <= since] == until[::-1]


def test_several_pieces_of_the_same_moment_are_all_found(run):
    for number in range(5):
        write(run, f"line {number}\n".encode(), wall=T)
    assert len(lines(entries.after(run, T))) == 5
    assert LogPiece.objects.count() == 5 and Run.objects.get().log_stored == 35
