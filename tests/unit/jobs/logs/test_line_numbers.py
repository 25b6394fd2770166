"""Numbers of lines: the same as counting the lines of the downloaded file, wherever its bytes are stored."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.logs import line_numbers, print_times, reader, segments
from jobs.logs.search_budget import SearchBudget
from jobs.models import LogSegment
from tests.harness.examples import examples_here
from tests.unit.console.log_rows import lose, undone, write
from tests.unit.jobs.conftest import spec

ADA = 1

pytestmark = pytest.mark.django_db
T = 1_700_000_000.0


@pytest.fixture
def run(add_host, submit):
    add_host()
    return submit(spec()).runs.get()


@pytest.fixture(autouse=True)
def nothing_remembered():
    line_numbers._last.clear()


def number_at(run, offset, seconds=60):
    with SearchBudget(ADA, seconds=seconds) as budget:
        return line_numbers.number_at(run, offset, budget)


def find(run, number):
    with SearchBudget(ADA, seconds=60) as budget:
        return line_numbers.find(run, number, budget)


def stored_lines(run):
    """(number, offset) of each line, counted in the bytes that are stored, gaps left out."""
    found, number, at, fresh = [], 1, 0, True
    size = reader.size(run)
    while at < size:
        chunk = reader.read(run, at, 3)
        for place, byte in enumerate(chunk.data):
            if fresh:
                found.append((number, chunk.start + place))
            fresh = byte == 10
            number += fresh
        at = chunk.end
    return found


parts = st.lists(
    st.one_of(
        st.text("a\n", min_size=1, max_size=30).map(str.encode),
        st.just("roll"),
        st.just("gap"),
        st.just("ask"),
    ),
    max_size=12,
)


@settings(max_examples=examples_here(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts)
def test_the_number_of_a_line_is_right_in_pieces_segments_and_after_gaps(run, parts):
    line_numbers._last.clear()
    with undone(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "size", lambda: 10)
        patch.setattr(line_numbers, "STEP", 7)
        for part in parts:
            if part == "roll":
                segments.roll(run.pk)
            elif part == "gap":
                lose(run, 5)
            elif part == "ask":
                number_at(run, reader.size(run))
            else:
                write(run, part)
        lines = stored_lines(run)
        for number, offset in lines:
            assert number_at(run, offset) == number
            found = find(run, number)
            # A line that begins behind a gap is found where the gap begins: the bytes before it may be of that line.
            assert found.number == number and found.offset <= offset
            assert reader.read(run, found.offset, 1).start == offset
        # Beyond the last line there is the last line.
        if lines:
            assert find(run, lines[-1][0] + 5).number == lines[-1][0]


def test_segments_of_before_are_counted_once_and_over_several_requests(run, monkeypatch):
    monkeypatch.setattr(segments, "size", lambda: 10)
    for _ in range(6):
        write(run, b"one\ntwo\n" * 2)
        segments.roll(run.pk)
    write(run, b"the end\n")
    assert list(LogSegment.objects.order_by("start").values_list("lines", flat=True)) == [4] * 6
    LogSegment.objects.update(lines=None)
    counts = []
    while (number := number_at(run, 96, 0)) is None:
        counts.append(LogSegment.objects.exclude(lines=None).count())
    assert (number, counts) == (25, [1, 2, 3, 4, 5])
    monkeypatch.setattr(reader, "read", lambda *_: pytest.fail("It was read again."))
    assert number_at(run, 96, 0) == 25


def test_a_growing_end_is_counted_once(run, monkeypatch):
    write(run, b"one\n" * 1000)
    assert number_at(run, 4000) == 1001
    write(run, b"two\n")
    read, whole = [], reader.read
    monkeypatch.setattr(reader, "read", lambda run, at, limit: read.append(at) or whole(run, at, limit))
    assert number_at(run, 4004) == 1002
    assert read == [4000]


def test_times_are_told_with_the_last_one_before(run, monkeypatch):
    monkeypatch.setattr(segments, "size", lambda: 10)
    for n in range(10):
        write(run, b"line\n", wall=T + n)
        segments.roll(run.pk)
    assert print_times.times_between(run, 12, 25) == [(10, T + 2), (15, T + 3), (20, T + 4)]
    assert print_times.times_between(run, 0, 5) == [(0, T)]
    assert print_times.times_between(run, 500, 600) == [(45, T + 9)]
    monkeypatch.setattr(print_times, "MAX_MARKS", 3)
    assert print_times.times_between(run, 0, 50) == [(0, T), (20, T + 4), (40, T + 8)]
