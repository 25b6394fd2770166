"""Recordings of shells, serve's half: a piece of a recording for each time that the console asks for one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import zlib
from typing import Tuple

from agents.runner.files import read_json, whole
from agents.runner.home import is_run_id
from agents.runner.outbox import Outbox
from agents.runner.runs.known import Runs
from agents.runner.shells.recording import path_of
from agents.runner.wire import Message, encode

PIECE_BYTES = 256 * 1024


class RecordingPull:
    """Handles the frame `cast_pull`. While nothing new was recorded there is no answer: the console asks again."""

    def __init__(self, runs: Runs, out: Outbox) -> None:
        self.runs, self.out = runs, out

    def on_pull(self, message: Message, payload: bytes) -> None:
        key, start = message["shell"], message["from"]
        if not is_run_id(key) or type(start) is not int or start < 0:
            raise ValueError("shell must be a name, and from an offset")
        run = self.runs.known(message)
        found = {"run": run.run, "shell": key}
        data, is_over = read_piece(path_of(run.directory, key), start)
        if data:
            packed = zlib.compress(data, 1)
            z = len(packed) < len(data)
            head = {"t": "cast", **found, "from": start, "to": start + len(data), "z": int(z)}
            self.out.bulk(encode(head, packed if z else data))
        elif is_over:
            end = read_json(path_of(run.directory, key) + ".end") or {}
            is_whole = whole(end.get("size")) == start > 0
            digest = str(end.get("digest"))[:64] if is_whole else ""
            self.out.send({"t": "cast_end", **found, "size": start, "digest": digest})


def read_piece(path: str, start: int) -> Tuple[bytes, bool]:
    """(a piece of the recording, whether nobody writes it any more)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b"", True
    try:
        # Before the file is read: what its writer wrote last is found then.
        is_over = os.path.exists(path + ".end") or is_unlocked(fd)
        return os.pread(fd, PIECE_BYTES, start), is_over
    except OSError:
        return b"", True
    finally:
        os.close(fd)


def is_unlocked(fd: int) -> bool:
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False
