"""The fast decompressor and that of the standard library agree about payloads."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from jobs.logs.pieces import Unreadable, inflate


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
