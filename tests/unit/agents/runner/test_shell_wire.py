"""The frames of a shell, and what is kept of its output."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from agents.runner.shells.frames import HEAD, IN, MAX_PAYLOAD, OUT, Frames, frame
from agents.runner.shells.ring import Modes, Ring
from agents.runner.wire import WireError

FRAMES = some.lists(
    some.tuples(some.integers(0, 255), some.integers(0, 2**64 - 1), some.binary(max_size=300))
)
CUTS = some.lists(some.integers(1, 40), max_size=60)


def cut(data, sizes):
    """The data in pieces of these sizes, then the rest."""
    for size in sizes:
        if data:
            yield data[:size]
            data = data[size:]
    yield data


@given(FRAMES, CUTS)
def test_frames_arrive_whole_wherever_they_are_cut(frames, sizes):
    data = b"".join(frame(*each) for each in frames)
    reader = Frames()
    assert [found for piece in cut(data, sizes) for found in reader.feed(piece)] == frames


def test_a_frame_that_is_too_long_is_refused_before_it_has_arrived():
    with pytest.raises(WireError, match="over the limit"):
        Frames().feed(HEAD.pack(OUT, MAX_PAYLOAD + 1, 0))
    assert Frames().feed(HEAD.pack(IN, MAX_PAYLOAD, 0)) == []


SEQUENCES = some.sampled_from(
    [
        b"\x1b[?1049h",
        b"\x1b[?1049l",
        b"\x1b[?2004;25h",
        b"\x1b[?25l",
        b"\x1b=",
        b"\x1b>",
        b"\x1b(0",
        b"\x1b(B",
    ]
    + [b"\x1bc", b"\x1b[31m", b"words and words", b"\r\n", b"x" * 100, b"\x1b[?5000h"]
)


@given(some.lists(SEQUENCES), CUTS)
def test_modes_are_the_same_wherever_output_is_cut(sequences, sizes):
    data = b"".join(sequences)
    whole, pieces = Modes(), Modes()
    whole.feed(data)
    for piece in cut(data, sizes):
        pieces.feed(piece)
    assert pieces.as_sequences() == whole.as_sequences()
    on = b"\x1b[?1049h" in data and data.rfind(b"\x1b[?1049h") > max(
        data.rfind(b"\x1b[?1049l"), data.rfind(b"\x1bc")
    )
    assert whole.is_alternate is on


def test_a_ring_keeps_at_least_its_size_and_begins_at_a_line():
    ring = Ring()
    for number in range(400_000):
        line = b"%07d some output\r\n" % number
        ring.append(line)
    assert ring.end == 400_000 * 21 and 2 << 20 <= ring.end - ring.start <= 4 << 20
    assert (
        ring.read(ring.start, 7).isdigit()
        and ring.read(ring.end - 21, 100) == b"%07d some output\r\n" % 399_999
    )
    assert ring.place(None) == (ring.start, True) and ring.place(ring.start - 1) == (ring.start, True)
    assert ring.place(ring.end) == (ring.end, False) and ring.place(ring.end + 1) == (ring.start, True)
    assert Ring().place(None) == (0, False)


def test_output_without_lines_is_kept_too():
    ring = Ring(1)
    for _ in range(600):
        ring.append(b"x" * 10_000)
    assert ring.end - ring.start >= 1 << 20 and len(ring.read(ring.start, 1 << 30)) == ring.end - ring.start
