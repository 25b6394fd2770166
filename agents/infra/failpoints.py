"""Named places on the console side where a test may kill or freeze the process that comes by.

Nothing happens unless TRAINYARD_FAILPOINT names one: `name` (SIGKILL), `name:stop` (SIGSTOP), or a directory in which a
file `name` with the content `kill` or `stop` arms a point while the process runs. Such a file is removed before it
fires, so that whoever takes over comes through. The runner has the same of its own: it imports nothing of ours.

With TRAINYARD_TRACE=FILE each point that somebody comes by is a line in that file: where the time of a job goes.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

# What the console says to a runner, and what it hears: each has a point before and after.
SENT = ("hello", "start", "stop", "pull", "ack", "forget", "watch", "evict", "ping")
RECEIVED = (
    *("hello", "inventory", "fact", "log", "gap", "log_end", "forgotten"),
    *("gpus", "evicted", "sample", "pong", "error"),
)
NAMES = (
    "submit.before",  # the job's rows are written, not committed
    "submit.after",
    "cancel.before",
    "schedule.before",  # runs are reserved, not committed
    "schedule.after",
    "lease.taken",  # ours in the database, nobody dialled yet
    "link.dialled",  # logged in, no runner started
    "install.before",  # the runner is not there yet
    "install.after",
    "orders.read",  # about to send starts and stops
    *(f"send.{kind}.{when}" for kind in SENT for when in ("before", "after")),
    *(f"receive.{kind}" for kind in RECEIVED),
    "take.before",  # the host told something, nothing is stored
    "take.after",  # stored, not acknowledged, nobody told
    "store.before",  # facts are written, not committed
    "store.after",
    "log.before",  # log bytes are written, not committed
    "log.after",
    "advance.before",  # decided and written, not committed
    "advance.after",  # committed, nobody told
    "release.before",  # the host proved the run clean, its claim still stands
    "release.after",
    "roll.written",  # a segment's file is there, its row is not
    "roll.after",
)


# Opened at once, or never: appending is atomic between processes.
_TRACE = os.environ.get("TRAINYARD_TRACE", "")
_trace = os.open(_TRACE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if _TRACE else -1


def trace(name: str) -> None:
    """A line of the machine's monotonic clock, this process, and where it is."""
    if _trace >= 0:
        os.write(_trace, f"{time.monotonic():.6f} {os.getpid()} {name}\n".encode())


def failpoint(name: str) -> None:
    trace(name)
    armed = os.environ.get("TRAINYARD_FAILPOINT", "")
    if not armed:
        return
    assert name in NAMES, name
    act = _file_says(Path(armed) / name) if "/" in armed else _variable_says(armed, name)
    if act:
        os.kill(os.getpid(), signal.SIGSTOP if act == "stop" else signal.SIGKILL)


def _file_says(path: Path) -> str:
    try:
        act = path.read_text().strip() or "kill"
        path.unlink()
    except OSError:
        return ""
    return act


def _variable_says(armed: str, name: str) -> str:
    wanted, _, act = armed.partition(":")
    return (act or "kill") if wanted == name else ""
