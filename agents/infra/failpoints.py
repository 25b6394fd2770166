"""Named points in the console's code at which a test kills or suspends the process that reaches them.

Nothing happens unless TRAINYARD_FAILPOINT is set: to `name` (SIGKILL at that point), to `name:stop` (SIGSTOP), or to a
directory, where a file called `name` with the content `kill` or `stop` arms that point in a running process. The file
is removed before the signal is sent, so that the process that takes over passes the point. The runner has failpoints of
its own, because it imports nothing from here.

With TRAINYARD_TRACE=FILE a process appends a line to that file at each point that it reaches: this shows where the time
between two points goes.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

# The kinds of frames that the console sends to a runner and receives from it. Each sent frame has a point before it and
# one after it.
SENT = (
    *("hello", "start", "stop", "pull", "ack", "forget", "watch", "evict", "discard", "ping", "cast_pull"),
    *("prepare", "unprepare", "metrics_pull"),
)
RECEIVED = (
    *("hello", "inventory", "fact", "log", "gap", "log_end", "forgotten"),
    *(
        "gpus",
        "evicted",
        "load",
        "kept",
        "discarded",
        "sample",
        "pong",
        "error",
        "cast",
        "cast_end",
        "prepared",
    ),
    *("metrics", "metrics_end"),
)
NAMES = (
    "submit.before",  # the rows of a request are written, not committed
    "submit.after",
    "cancel.before",
    "schedule.before",  # runs are reserved, not committed
    "schedule.after",
    "lease.taken",  # the lease is ours in the database, the host is not dialled yet
    "link.dialled",  # logged in, the runner is not started
    "install.before",  # the runner is not on the host yet
    "install.after",
    "orders.read",  # about to send starts and stops
    *(f"send.{kind}.{when}" for kind in SENT for when in ("before", "after")),
    *(f"receive.{kind}" for kind in RECEIVED),
    "take.before",  # the host reported something, nothing is stored
    "take.after",  # stored; not acknowledged, no hint sent
    "store.before",  # facts are written, not committed
    "store.after",
    "log.before",  # log bytes are written, not committed
    "log.after",
    "advance.before",  # decided and written, not committed
    "advance.after",  # committed, no hint sent
    "release.before",  # the host proved the run closed, its claims are not released
    "release.after",
    "tuning.drawn",  # the parameters of a trial are committed, its job is not placed yet
    "tuning.before",  # what became of trials is written, not committed
    "tuning.after",  # committed; jobs of trials are not cancelled yet, no hint sent
    "roll.written",  # the file of a segment exists, its row does not
    "roll.after",
)


_TRACE = os.environ.get("TRAINYARD_TRACE", "")


def trace(name: str) -> None:
    """Append the monotonic time, the process id and the name of the point to the trace. Processes share the file: each
    appends whole lines. It is opened anew each time, because a fork closes what was open."""
    if _TRACE:
        with open(_TRACE, "ab", buffering=0) as file:
            file.write(f"{time.monotonic():.6f} {os.getpid()} {name}\n".encode())


def failpoint(name: str) -> None:
    trace(name)
    armed = os.environ.get("TRAINYARD_FAILPOINT", "")
    if not armed:
        return
    assert name in NAMES, name
    action = _action_in_file(Path(armed) / name) if "/" in armed else _action_in_variable(armed, name)
    if action:
        os.kill(os.getpid(), signal.SIGSTOP if action == "stop" else signal.SIGKILL)


def _action_in_file(path: Path) -> str:
    try:
        action = path.read_text().strip() or "kill"
        path.unlink()
    except OSError:
        return ""
    return action


def _action_in_variable(armed: str, name: str) -> str:
    armed_name, _, action = armed.partition(":")
    return (action or "kill") if armed_name == name else ""
