"""Sums of chunks in the order of the trainers: the same bits in each run. Numbers of 16 bits are summed in float32."""

from __future__ import annotations

from typing import Any, Sequence

import numpy

from agents.runner.reduction.wire import FLOAT16, FLOAT32, FLOAT64


def decode(data: Any, kind: int) -> Any:
    """Numbers that can be summed."""
    if kind == FLOAT32:
        return numpy.frombuffer(data, numpy.float32)
    if kind == FLOAT64:
        return numpy.frombuffer(data, numpy.float64)
    if kind == FLOAT16:
        return numpy.frombuffer(data, numpy.float16).astype(numpy.float32)
    return (numpy.frombuffer(data, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)


def encode(numbers: Any, kind: int) -> Any:
    if kind in (FLOAT32, FLOAT64):
        return numbers
    if kind == FLOAT16:
        return numbers.astype(numpy.float16)
    bits = numbers.view(numpy.uint32)
    wide = bits >> 16
    wide &= 1
    wide += 0x7FFF
    wide += bits
    wide >>= 16
    rounded = wide.astype(numpy.uint16)
    nothing = numpy.isnan(numbers)
    if nothing.any():  # rounding would carry into the sign, and make a number of it
        rounded[nothing] = 0x7FC0
    return rounded


def mean(chunks: Sequence[Any], kind: int, divisor: int) -> bytes:
    """The mean of the trainers' chunks, as it is sent back. What is too large becomes infinite, as in a sum by gloo."""
    with numpy.errstate(all="ignore"):
        total = decode(chunks[0], kind)
        if len(chunks) > 1:
            total = total + decode(chunks[1], kind)  # not in place: it may be the chunk's own memory
        elif kind in (FLOAT32, FLOAT64):
            total = total.copy()
        for chunk in chunks[2:]:
            total += decode(chunk, kind)
        if divisor != 1:
            total /= divisor
        found: bytes = encode(total, kind).tobytes()
    return found
