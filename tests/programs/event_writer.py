#!/usr/bin/env python3
"""Writes scalars as TensorBoard's own writers do, where AIP_TENSORBOARD_LOG_DIR says, and reports in no other way.

The loss of a trial is what its last argument says. Each step is flushed, as by a writer that is flushed.
"""

from __future__ import annotations

import os
import struct
import sys
import time


def table():
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ 0x82F63B78 * (byte & 1)
        found.append(byte)
    return found


TABLE = table()


def checksum(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


class SummaryWriter:
    """As torch.utils.tensorboard has it: it makes the directory, and a file of its own in it."""

    def __init__(self, log_dir):
        os.makedirs(log_dir, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.host.{os.getpid()}.0"
        self.file = open(os.path.join(log_dir, name), "wb")  # noqa: SIM115
        self.write(field(3, b"brain.Event:2"))

    def add_scalar(self, tag, value, step):
        scalar = field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
        self.write(bytes([2 << 3, step]) + field(5, field(1, scalar)))

    def write(self, data):
        data = b"\x09" + struct.pack("<d", time.time()) + data
        length = struct.pack("<Q", len(data))
        self.file.write(length + checksum(length) + data + checksum(data))
        self.file.flush()


if __name__ == "__main__":
    writer = SummaryWriter(os.environ["AIP_TENSORBOARD_LOG_DIR"])
    rate = float(sys.argv[-1].partition("=")[2] or 0.5)
    for step in (1, 2, 3):
        writer.add_scalar("loss", rate + 1.0 / 2**step, step)
    print("wrote", writer.file.name, flush=True)
