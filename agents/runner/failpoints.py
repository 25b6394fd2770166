"""Failpoints: named places where a test may kill or freeze the process. They do nothing in production."""

from __future__ import annotations

import os
import signal

_ARMED = os.environ.get("TRAINYARD_FAILPOINT", "")

RUNNER_FAILPOINTS = (
    "after_mkdir",  # serve: the claim exists, no process holds its lock yet
    "after_lock",  # serve: before the keeper is forked
    "before_reply",  # serve: before a fact is sent
    "after_tombstone",  # serve: directory made, no fact in it yet
    "before_delete",  # serve: forget was ordered, nothing deleted yet
    "keeper_born",  # inner keeper: nothing written yet
    "after_gpu_lock",  # inner keeper
    "after_order",  # inner keeper: all is prepared, the outer keeper not told yet
    "before_gate",  # inner keeper: the replica's process exists but may not exec yet
    "after_gate",  # inner keeper: the replica may run, the facts do not say so yet
    "before_started",  # inner keeper: it runs, the fact is not written yet
    "after_started",
    "between_term_and_kill",
    "before_ended",  # the working keeper: the replica is over, nothing is written
    "before_reap",  # its exit is written, the zombie still there
    "before_closed",  # the tree is empty, GPUs are free, the last fact not written
    "after_closed",
    "before_commit",  # a pass over metrics: they are in the journal, nothing says yet that they count
)


def failpoint(name: str) -> None:
    """Die (or stop) here if TRAINYARD_FAILPOINT says so: "name[:stop]", or a directory that holds a file `name`.

    The file is removed before it fires, so that the process that takes over passes.
    """
    if not _ARMED:
        return
    act = "kill"
    if "/" in _ARMED:
        path = os.path.join(_ARMED, name)
        try:
            with open(path) as file:
                act = file.read().strip() or "kill"
            os.unlink(path)
        except OSError:
            return
    else:
        wanted, _, act = _ARMED.partition(":")
        if wanted != name:
            return
    os.kill(os.getpid(), signal.SIGSTOP if act == "stop" else signal.SIGKILL)
