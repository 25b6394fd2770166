#!/usr/bin/python3
"""A file system that hangs: `stuck_disk.py DIRECTORY` mounts it there and does not answer lookups. For test hosts.

A process that looks up a name in it sleeps uninterruptibly and cannot be killed, as on a dead NFS server, until this
program ends: then the kernel fails the waiting calls. Run as root.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys

HEADER = struct.Struct("<IIQQIIII")
ANSWER = struct.Struct("<IiQ")
LOOKUP, GETATTR, INIT = 1, 3, 26
ENOSYS = 38
DIRECTORY_MODE = 0o40777
MNT_DETACH = 2


def attributes():
    times = (0, 0, 0)
    attr = struct.pack("<QQQQQQIIIIIIIIII", 1, 0, 0, *times, 0, 0, 0, DIRECTORY_MODE, 2, 0, 0, 0, 4096, 0)
    return struct.pack("<QII", 3600, 0, 0) + attr


def main():
    where = sys.argv[1]
    os.makedirs(where, exist_ok=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"stuck", where.encode(), b"fuse", 0, options.encode()):
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    print("mounted", flush=True)
    try:
        while True:
            data = os.read(device, 1 << 17)
            _, what, unique, *_ = HEADER.unpack_from(data)
            if what == INIT:
                version = struct.pack("<IIIIHHIIHHI28x", 7, 31, 65536, 0, 12, 10, 65536, 1, 0, 0, 0)
                reply(device, unique, version)
            elif what == GETATTR:
                reply(device, unique, attributes())
            elif what != LOOKUP:  # a lookup waits for ever
                reply(device, unique, b"", -ENOSYS)
    finally:
        libc.umount2(where.encode(), MNT_DETACH)


def reply(device, unique, body, error=0):
    with contextlib.suppress(OSError):  # the caller waits no more
        os.write(device, ANSWER.pack(ANSWER.size + len(body), error, unique) + body)


if __name__ == "__main__":
    main()
