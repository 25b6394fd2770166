"""Put the frames of a log together, exact to the byte: append what continues it, trim overlaps, report what is missing.

Pure: bytes and offsets in, pieces out. A log is stored up to an offset, and a frame counts only where it continues
there. So repeated, old, reordered and overlapping frames do no harm, and a hole is noticed at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from isal import isal_zlib

from agents.links.control_plane import Frame, Gap

MAX_RAW = 8 * 1024 * 1024
MAX_OFFSET = 2**53
MAX_MARKS = 64
BLOCK = 64 * 1024
# A host sends so many bytes unpacked where packing them would take it longer than sending them. isal packs as well, in
# a third of the time.
PACK_FROM = 64 * 1024
# The stub of isal declares the class as an instance.
BROKEN = cast("type[Exception]", isal_zlib.error)

Mark = tuple[int, float]


class Unreadable(Exception):
    """The payload does not match its frame: broken compression, another length, or more than a frame may hold."""


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes [start, end) of a log as they are stored: zlib when `z`. `at` holds when some of them were printed."""

    start: int
    end: int
    z: bool
    payload: bytes
    at: tuple[Mark, ...] = ()

    @property
    def wall(self) -> float | None:
        return self.at[0][1] if self.at else None

    def raw(self) -> bytes:
        return inflate(self.payload, self.end - self.start) if self.z else self.payload


@dataclass(slots=True)
class Tail:
    """The end of a stored log while frames are appended. Everything before `stored` is stored or a known gap."""

    stored: int
    blocks: list[Block] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    hole: bool = False
    unreadable: Frame | None = None

    def add(self, frame: Frame) -> None:
        if not 0 <= frame.start < frame.end <= MAX_OFFSET or frame.end <= self.stored:
            return
        if frame.start > self.stored:
            self.hole = True
            return
        try:
            block = block_of(frame)
        except Unreadable:
            self.hole = True
            self.unreadable = frame
            return
        self.blocks.append(block if block.start == self.stored else after(block, self.stored))
        self.stored = block.end

    def skip(self, gap: Gap) -> None:
        """Append a gap: the host has no bytes of this range. Bytes of it that are stored already stay."""
        if not 0 <= gap.start < gap.end <= MAX_OFFSET or gap.end <= self.stored:
            return
        if gap.start > self.stored:
            self.hole = True
            return
        self.gaps.append(Gap(self.stored, gap.end, gap.reason))
        self.stored = gap.end


def block_of(frame: Frame) -> Block:
    """The block of a frame. Raises Unreadable unless the payload really holds end - start bytes."""
    size = frame.end - frame.start
    if size > MAX_RAW:
        raise Unreadable
    z, data = frame.z, bytes(frame.data)
    if z:
        inflate(data, size)
    elif len(data) != size:
        raise Unreadable
    elif size >= PACK_FROM:
        z, data = deflate(data)
    return Block(frame.start, frame.end, z, data, marks(frame.at, frame.start, frame.end))


def inflate(data: bytes, size: int) -> bytes:
    """Decompress exactly `size` bytes, and never use more memory than that, whatever the payload holds."""
    engine = isal_zlib.decompressobj()
    try:
        raw = engine.decompress(data, size + 1)
    except BROKEN as problem:
        raise Unreadable from problem
    if len(raw) != size or not engine.eof or engine.unused_data:
        raise Unreadable
    return raw


def deflate(raw: bytes) -> tuple[bool, bytes]:
    packed = isal_zlib.compress(raw, 1)
    return (True, packed) if len(packed) < len(raw) else (False, raw)


def after(block: Block, start: int) -> Block:
    """The part of the block from `start` on."""
    z, payload = deflate(block.raw()[start - block.start :])
    return Block(start, block.end, z, payload, marks(block.at, start, block.end))


def marks(at: Sequence[Any], start: int, end: int) -> tuple[Mark, ...]:
    """The marks that are valid and lie in [start, end), in order."""
    found: list[Mark] = []
    for mark in list(at)[:MAX_MARKS]:
        if not isinstance(mark, list | tuple) or len(mark) != 2:
            continue
        offset, wall = mark
        if (
            type(offset) is int
            and start <= offset < end
            and type(wall) in (int, float)
            and math.isfinite(wall)
        ):
            found.append((offset, float(wall)))
    return tuple(found)


def merged(blocks: Iterable[Block]) -> list[Block]:
    """Join small neighbours into blocks of at most `BLOCK` bytes.

    A replica that prints a line each 20 ms makes fifty pieces a second; without joining, the index over a day of them
    would be larger than the log.
    """
    joined: list[Block] = []
    run: list[Block] = []
    for block in blocks:
        if run and (run[-1].end != block.start or block.end - run[0].start > BLOCK):
            joined.append(_joined(run))
            run = []
        run.append(block)
    return [*joined, _joined(run)] if run else joined


def _joined(run: list[Block]) -> Block:
    if len(run) == 1:
        return run[0]
    z, payload = deflate(b"".join(block.raw() for block in run))
    at = [mark for block in run for mark in block.at]
    few_marks = at[:: max(1, len(at) // 16)]
    return Block(run[0].start, run[-1].end, z, payload, tuple(few_marks))
