"""The lines of many logs in the order of their times: each once, however the bytes come and wherever one goes on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from console.live import merged_lines
from console.live.merged_lines import LineFeeder, in_order
from console.live.tails import Piece

T = 1000.0

# Of each line: its text, and how much later than the line before it was printed. Clocks may be set back.
printed = st.lists(
    st.tuples(st.text("ab\r", max_size=6), st.sampled_from([0.0, 0.5, 2.0, -30.0])), max_size=12
)


def log_of(lines):
    """The bytes of a log, and its marks: each line has the time of its own."""
    data, marks, at = b"", [], T
    for text, later in lines:
        at += later
        marks.append((len(data), at))
        data += text.encode() + b"\n"
    return data, marks


def pieces(data, marks, start, cuts):
    """[start, end of the data) in pieces."""
    places = sorted({start, len(data), *(start + cut % (len(data) - start + 1) for cut in cuts)})
    for low, high in zip(places, places[1:], strict=False):
        yield Piece(low, high, data[low:high], at=tuple(mark for mark in marks if low <= mark[0] < high))


def whole(log, lines):
    """What a viewer of this log alone sees: (text, end) of each line."""
    found, at = [], 0
    for text, _ in lines:
        at += len(text) + 1
        found.append((log, at, text.rstrip("\r").rpartition("\r")[2]))
    return found


@given(st.lists(printed, min_size=1, max_size=4), st.lists(st.integers(0, 100), max_size=8), st.data())
def test_each_line_comes_once_over_a_reconnect(logs, cuts, data):
    """The viewer goes on from the ends of the lines that it has."""
    seen = []
    for log, lines in enumerate(logs):
        whole_data, marks = log_of(lines)
        feeder = LineFeeder(log, 0, T)
        for piece in pieces(whole_data[: data.draw(st.integers(0, len(whole_data)))], marks, 0, cuts):
            seen += feeder.feed(piece)
        end = max((line.end for line in seen if line.log == log), default=0)
        again = LineFeeder(log, end, T)
        for piece in pieces(whole_data, marks, end, cuts):
            seen += again.feed(piece)
    assert sorted((line.log, line.end, line.text) for line in seen) == sorted(
        one for log, lines in enumerate(logs) for one in whole(log, lines)
    )


@given(st.lists(printed, min_size=1, max_size=4), st.lists(st.integers(0, 100), max_size=8))
def test_lines_of_all_replicas_come_by_time_and_a_clock_that_was_set_back_keeps_the_order(logs, cuts):
    seen, expected = [], []
    for log, lines in enumerate(logs):
        data, marks = log_of(lines)
        feeder = LineFeeder(log, 0, T)
        for piece in pieces(data, marks, 0, cuts):
            seen += feeder.feed(piece)
        at = latest = T
        for (_, later), (_, end, text) in zip(lines, whole(log, lines), strict=True):
            at += later
            latest = max(latest, at)
            expected.append((latest, log, end, text))
    ordered = [(line.at, line.log, line.end, line.text) for line in in_order(seen)]
    assert ordered == sorted(expected)


def test_a_line_has_the_time_of_its_last_byte_and_goes_on_without_marks():
    feeder = LineFeeder(3, 10, T)
    assert feeder.feed(Piece(10, 13, b"one", at=((10, T + 1),))) == []
    found = feeder.feed(Piece(13, 23, b" two\nthree", at=((13, T + 2),)))
    assert [(line.at, line.log, line.end, line.text) for line in found] == [(T + 2, 3, 18, "one two")]
    assert [line.at for line in feeder.feed(Piece(23, 24, b"\n"))] == [T + 2]


def test_gaps_skips_and_the_last_line_are_told():
    feeder = LineFeeder(0, 0, T)
    told = feeder.feed(Piece(0, 8, b"one\nhalf"))
    told += feeder.feed(Piece(8, 108, b"", "the disk was full"))
    told += feeder.feed(Piece(108, 112, b"two\n"))
    told += feeder.skip(500, "388 bytes are not shown")
    told += feeder.feed(Piece(500, 503, b"end"))
    told += feeder.finish() + feeder.finish()
    assert [(line.end, line.text, line.kind) for line in told] == [
        (4, "one", ""),
        (8, "half", ""),
        (108, "100 bytes are missing: the disk was full", "note"),
        (112, "two", ""),
        (500, "388 bytes are not shown", "note"),
        (503, "end", ""),
    ]


def test_a_line_without_end_comes_in_parts_and_holds_little(monkeypatch):
    monkeypatch.setattr(merged_lines, "MAX_LINE", 100)
    feeder, found = LineFeeder(0, 0, T), []
    for start in range(0, 10_000, 64):
        found += feeder.feed(Piece(start, start + 64, b"x" * 64, at=((start, T + start),)))
        assert len(feeder.held) <= 100 and len(feeder.marks) < 6
    assert {len(line.text) for line in found} == {100} and found[-1].end > 9_800


def test_of_a_progress_bar_the_last_state_comes():
    [line] = LineFeeder(0, 0, T).feed(Piece(0, 17, b"\r 1%\r 50%\r100%\r\n"))
    assert line.text == "100%"
