"""The last bytes of a log that were sent. A log that has others there was cut and filled again by its program.

Their digest is noted beside the log before they are sent, so that the next serve knows it: not the bytes, for a log may
show secrets, and whoever searches for them looks for them in logs. A host that lost its power may have lost the end of
a log too, and nobody has cut it: a note of before the boot counts for nothing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import struct
import zlib
from typing import List

from agents.runner.files import read_plain, unlink
from agents.runner.linux import boot_id

TAIL_BYTES = 64
# The boot, the shift of the log, where these bytes end in the file, how many they are, their SHA-256; then a checksum.
NOTE = struct.Struct("<36sQQB32s")
CHECKSUM = struct.Struct("<I")


class SentTail:
    """The `length` bytes of the file below `end`, as they were when they were sent. No `length`: not known."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, "log.tail")
        self._fd = -1
        self._keeps = True
        self.end = self.length = 0
        self._data = self._digest = b""

    def load(self, shift: int) -> None:
        """Read what an earlier serve noted of this log, unless it was cut since."""
        try:
            data = read_plain(self._path, NOTE.size + CHECKSUM.size)
            (checksum,) = CHECKSUM.unpack(data[NOTE.size :])
            boot, of_shift, end, length, digest = NOTE.unpack(data[: NOTE.size])
        except (OSError, struct.error):
            return
        if checksum == zlib.crc32(data[: NOTE.size]) and boot == _boot() and of_shift == shift:
            self.end, self.length, self._digest = end, min(length, TAIL_BYTES, end), digest

    def moved(self, start: int, data: bytes, shift: int) -> None:
        """These bytes of the file are sent next. Noted at once: the console never has more than the note says."""
        before = self._data if self.end == start else b""
        self._set(start + len(data), (before + data[-TAIL_BYTES:])[-TAIL_BYTES:], shift)

    def skipped(self, to: int, shift: int) -> None:
        """The file has nothing more of what is below `to`."""
        self._set(to, b"", shift)

    def _set(self, end: int, data: bytes, shift: int) -> None:
        self.end, self.length, self._data = end, len(data), data
        if not self._keeps:
            return
        self._digest = hashlib.sha256(data).digest()
        note = NOTE.pack(_boot(), shift, end, len(data), self._digest)
        note += CHECKSUM.pack(zlib.crc32(note))
        try:
            if self._fd < 0:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            whole = os.pwrite(self._fd, note, 0) == len(note)
        except OSError:
            whole = False
        if not whole:  # the disk is full: better no note than an old one
            self._keeps = False
            unlink(self._path)

    def differs(self, fd: int) -> bool:
        """Whether the file has other bytes there. The caller looks whether they were punched out."""
        if not self.length:
            return False
        found = os.pread(fd, self.length, self.end - self.length)
        if self._data:
            return found != self._data
        if hashlib.sha256(found).digest() != self._digest:
            return True
        self._data = found
        return False

    def in_holes(self, holes: List[List[int]]) -> bool:
        return any(start < self.end and self.end - self.length < end for start, end in holes)

    def close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1


@functools.lru_cache(maxsize=None)
def _boot() -> bytes:
    return boot_id().encode()[:36].ljust(36, b"\0")
