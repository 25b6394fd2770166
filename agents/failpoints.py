"""Named places on the console side where a test may kill or freeze the process that comes by.

Nothing happens unless TRAINYARD_FAILPOINT names one: `name` (SIGKILL), `name:stop` (SIGSTOP), or a directory in which a
file `name` with the content `kill` or `stop` arms a point while the process runs. Such a file is removed before it
fires, so that whoever takes over comes through. The runner has the same of its own: it imports nothing of ours.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

NAMES = (
    "after_reserve",  # the run's row is committed, nothing is sent
    "before_send",  # about to write a start
    "after_send",  # the start is on its way, no answer read
    "before_db_write",  # facts were read from the host, not stored
    "after_db_write",  # stored, nobody told
    "before_close_send",  # about to write a stop
    "after_close_send",
    "before_release",  # the host proved the run clean, its claim still stands in the database
    "after_release",
    "before_log_store",  # log bytes are here, not stored
    "after_log_store",  # stored, not acknowledged
    "before_ack",
    "after_ack",
    "before_forget",  # everything is safe here, the host still has its copy
    "after_forget",
)


def failpoint(name: str) -> None:
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
