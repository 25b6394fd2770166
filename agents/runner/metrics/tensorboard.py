"""TensorBoard's event files: the scalars in them, read without TensorBoard.

A file is a row of records: length (8 bytes), its crc (4), data, its crc (4). Each is an Event message of protobuf, of
which five fields are read. Scalars stand as `simple_value` (TensorFlow 1, torch), or in a tensor of one number
(TensorFlow 2). A record that is not whole yet is waited for. Pure.
"""

from __future__ import annotations

import struct
from typing import Any, Dict, Iterator, List, Tuple

from agents.runner.metrics.reports import TENSORBOARD, Report, name_of

# Larger records hold pictures, histograms and graphs: no scalar has so many bytes. They are skipped unread.
MAX_RECORD = 64 * 1024
HEAD, TAIL = 12, 4
# Fields of Event, Summary, Summary.Value, TensorProto, SummaryMetadata and its PluginData.
_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_VALUE, _TAG, _SIMPLE_VALUE, _TENSOR, _METADATA = 1, 1, 2, 8, 9
_DTYPE, _CONTENT, _FLOATS, _DOUBLES, _INTS, _INT64S = 1, 4, 5, 6, 7, 10
_PLUGIN, _PLUGIN_NAME = 1, 1
# By the number of a type in TensorFlow: how one number of it is packed.
_TYPES = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}
_MASK = 0xA282EAD8


def _table() -> List[int]:
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ 0x82F63B78 * (byte & 1)
        found.append(byte)
    return found


_CRC = _table()


def masked_crc(data: bytes) -> int:
    """The CRC-32C as these files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def next_record(data: bytes, at: int, is_end: bool) -> Tuple[int, bytes]:
    """(how many bytes the record at this place takes, its data).

    0: it is not whole yet. -1: these bytes are no record. The data is b"" where it is skipped: it is too large, or its
    crc is wrong although others follow it. `is_end`: nothing follows these bytes in the file yet.
    """
    if len(data) - at < HEAD:
        return 0, b""
    (length,) = struct.unpack_from("<Q", data, at)
    if struct.unpack_from("<I", data, at + 8)[0] != masked_crc(data[at : at + 8]):
        return -1, b""
    whole = HEAD + length + TAIL
    if length > MAX_RECORD:
        return whole, b""
    if len(data) - at < whole:
        return 0, b""
    found = data[at + HEAD : at + HEAD + length]
    if struct.unpack_from("<I", data, at + HEAD + length)[0] == masked_crc(found):
        return whole, found
    return (0 if is_end and at + whole == len(data) else whole), b""


def fields(data: bytes) -> Iterator[Tuple[int, Any]]:
    """(number, value) of each field of a message; ValueError where it is none."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        value: Any
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 2:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = data[at : at + size], at + size
        else:
            raise ValueError("a field of kind %d" % kind)
        if at > len(data):
            raise ValueError("a field that ends behind its message")
        yield key >> 3, value


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    found = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number that does not end")
        byte = data[at]
        found |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return found, at


def scalars(record: bytes, prefix: str) -> List[Report]:
    """The reports in one record; none where it is damaged, or holds something else."""
    try:
        event: Dict[int, Any] = dict(fields(record))
        if not isinstance(event.get(_SUMMARY), bytes):
            return []
        at = struct.unpack("<d", event[_WALL_TIME])[0] if _WALL_TIME in event else 0.0
        step = int(event.get(_STEP, 0))
        step -= 1 << 64 if step >= 1 << 63 else 0
        found = [_scalar(value, prefix) for number, value in fields(event[_SUMMARY]) if number == _VALUE]
    except (ValueError, TypeError, struct.error):
        return []
    known_at = at if 0 < at < 1e11 else None
    return [Report(TENSORBOARD, name, step, value, known_at) for name, value in filter(None, found)]


def _scalar(message: bytes, prefix: str) -> Tuple[str, float] | None:
    found = dict(fields(message))
    name = name_of(prefix + bytes(found.get(_TAG, b"")).decode("utf-8", "replace"))
    if not name:
        return None
    if _SIMPLE_VALUE in found:
        return name, struct.unpack("<f", found[_SIMPLE_VALUE])[0]
    plugin = dict(fields(dict(fields(found.get(_METADATA, b""))).get(_PLUGIN, b""))).get(_PLUGIN_NAME, b"")
    if _TENSOR not in found or plugin not in (b"", b"scalars"):
        return None
    value = _only_number(dict(fields(found[_TENSOR])))
    return None if value is None else (name, value)


def _only_number(tensor: Dict[int, Any]) -> float | None:
    """The number of a tensor that has just one."""
    form = _TYPES.get(tensor.get(_DTYPE, 0))
    if form is None:
        return None
    content = tensor.get(_CONTENT, b"")
    for number, packed in ((_FLOATS, "<f"), (_DOUBLES, "<d")):
        if isinstance(tensor.get(number), bytes):
            content, form = tensor[number], packed
    for number in (_INTS, _INT64S):
        if number in tensor:
            found = tensor[number]
            return float(found if isinstance(found, int) else _varint(found, 0)[0])
    if len(content) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, content)[0])
