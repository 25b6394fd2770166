"""Recordings of shells, serve's half: a piece of a recording for each time that the console asks for one.

The console asks for the recordings of all shells at once. Each turn of serve's loop answers for one of them, so that
fifty shells that print do not hold up the logs for a quarter of a second.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import zlib
from typing import Dict, Tuple

from agents.runner.files import read_json, whole
from agents.runner.home import is_run_id
from agents.runner.outbox import Outbox
from agents.runner.runs.known import OUT_BYTES, Run, Runs
from agents.runner.shells.recording import path_of
from agents.runner.wire import Message, encode

PIECE_BYTES = 256 * 1024
# While less waits for the pipe, a piece is read. A log that is behind leaves less waiting, and keeps no piece away.
MAX_WAITING = 2 * OUT_BYTES


class RecordingPull:
    """Handles the frame `cast_pull`. While nothing new was recorded there is no answer: the console asks again."""

    def __init__(self, runs: Runs, out: Outbox) -> None:
        self.runs, self.out = runs, out
        # By run and shell: from which offset.
        self.asked: Dict[Tuple[str, str], Tuple[Run, int]] = {}

    def on_pull(self, message: Message, payload: bytes) -> None:
        key, start = message["shell"], message["from"]
        if not is_run_id(key) or type(start) is not int or start < 0:
            raise ValueError("shell must be a name, and from an offset")
        run = self.runs.known(message)
        self.asked[run.run, key] = run, start

    def is_due(self) -> bool:
        return bool(self.asked) and self.out.bulk_bytes < MAX_WAITING

    def step(self) -> None:
        """Answer for one recording, while the console takes what is sent."""
        if not self.is_due():
            return
        name, key = next(iter(self.asked))
        run, start = self.asked.pop((name, key))
        if self.runs.by_name.get(name) is run:
            self._answer(run, key, start)

    def _answer(self, run: Run, key: str, start: int) -> None:
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
