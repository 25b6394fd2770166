"""A file system that hangs: mounted, but not served any more, as of an NFS server that is gone. For unit tests."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import threading
from pathlib import Path

HEADER = struct.Struct("<IIQQIIII")  # length, opcode, unique, node, uid, gid, pid, padding
FUSE_INIT, FUSE_GETATTR, FUSE_LOOKUP, FUSE_FORGET, FUSE_INTERRUPT = 26, 3, 1, 2, 36
MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


class HangingDisk:
    """`with HangingDisk(path) as disk: ... disk.hang()`. Needs root. Until it hangs it is an empty directory."""

    def __init__(self, path: Path):
        self.path = path
        self.hangs, self.over = threading.Event(), threading.Event()

    def __enter__(self):
        self.fd = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if _libc.mount(b"hanging", os.fsencode(self.path), b"fuse", 0, options) != 0:
            raise OSError(ctypes.get_errno(), f"fuse could not be mounted at {self.path}")
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *problem):
        _libc.umount2(os.fsencode(self.path), MNT_DETACH)
        self.over.set()
        self.thread.join(10)
        os.close(self.fd)  # the last descriptor: processes that still wait get an error

    def hang(self):
        self.hangs.set()

    def _serve(self):
        with contextlib.suppress(OSError):
            while not self.over.is_set():
                if not select.select([self.fd], [], [], 0.1)[0]:
                    continue
                request = os.read(self.fd, 1 << 20)
                _, opcode, unique, node, *_ = HEADER.unpack_from(request)
                if opcode == FUSE_INIT:
                    # version 7.8: the short answer. max_readahead, flags, unused, max_write
                    self._answer(unique, struct.pack("<IIIIII", 7, 8, 65536, 0, 0, 65536))
                elif self.hangs.is_set() or opcode in (FUSE_FORGET, FUSE_INTERRUPT):
                    continue
                elif opcode == FUSE_GETATTR:
                    attributes = struct.pack(
                        "<QQQQQQIIIIIIIII", node, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 0
                    )
                    self._answer(unique, struct.pack("<QII", 0, 0, 0) + attributes[:80])
                else:
                    self._answer(unique, b"", error=-2)

    def _answer(self, unique, payload, error=0):
        os.write(self.fd, struct.pack("<IiQ", 16 + len(payload), error, unique) + payload)
