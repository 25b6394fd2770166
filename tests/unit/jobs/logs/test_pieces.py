"""The fast decompressor and that of the standard library agree about payloads."""

from __future__ import annotations

import random
import zlib

from hypothesis import given
from hypothesis import strategies as st

from agents.links.control_plane import Frame
from jobs.logs.pieces import PACK_FROM, Unreadable, block_of, inflate


def slowly(data, size):
    engine = zlib.decompressobj()
    try:
        raw = engine.decompress(data, size + 1)
    except zlib.error:
        return None
    return raw if len(raw) == size and engine.eof and not engine.unused_data else None


def quickly(data, size):
    try:
        return inflate(data, size)
    except Unreadable:
        return None


spoilt = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3)


@given(st.binary(max_size=300), st.integers(0, 9), spoilt, st.integers(-3, 3), st.binary(max_size=3))
def test_any_frame_is_read_as_zlib_reads_it(raw, level, changes, off, more):
    data = bytearray(zlib.compress(raw * 3, level))
    for place, value in changes:
        data[place % len(data)] = value
    for payload in (bytes(data), bytes(data) + more, bytes(data[: len(data) + min(off, 0)])):
        for size in {len(raw) * 3, max(0, len(raw) * 3 + off)}:
            assert quickly(payload, size) == slowly(payload, size)


def test_a_large_frame_that_came_unpacked_is_stored_packed():
    raw = b"".join(b"step %d | loss 0.5\n" % n for n in range(20_000))
    block = block_of(Frame(7, 7 + len(raw), False, raw, ((7, 1.0),)))
    assert (block.start, block.end, block.at) == (7, 7 + len(raw), ((7, 1.0),))
    assert block.z and len(block.payload) < len(raw) / 3
    assert block.raw() == raw == zlib.decompress(block.payload)


def test_a_frame_that_is_short_or_does_not_get_smaller_is_stored_as_it_came():
    for raw in (b"word " * 1000, random.Random(1).randbytes(2 * PACK_FROM)):
        block = block_of(Frame(0, len(raw), False, raw))
        assert (block.z, block.payload) == (False, raw)
