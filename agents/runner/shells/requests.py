"""What a process that attaches to a shell asks its holder for, and the descriptors that it gives."""

from __future__ import annotations

import array
import os
import socket
from typing import Any, List, Tuple

from agents.runner.wire import MAX_HEADER, Message, decode_object


def receive(control: socket.socket) -> Tuple[List[int], Message]:
    """(the two descriptors, the request) of a process that attaches."""
    fds = array.array("i")
    data, ancillary, _, _ = control.recvmsg(MAX_HEADER, socket.CMSG_SPACE(2 * fds.itemsize))
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    if len(fds) != 2:
        for fd in fds:
            os.close(fd)
        raise ValueError("two descriptors are expected")
    return list(fds), decode_object(data)


def in_range(columns: Any, rows: Any) -> Tuple[int, int]:
    columns, rows = (columns if type(columns) is int else 80), (rows if type(rows) is int else 24)
    return min(1000, max(1, columns)), min(1000, max(1, rows))


def size_of(request: Message) -> Tuple[int, int]:
    return in_range(request.get("cols"), request.get("rows"))
