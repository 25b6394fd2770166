"""Find the threads and processes that a test leaves behind: they would disturb the tests after it."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from multiprocessing import resource_tracker

from tests.harness import leftovers
from tests.harness.wait_and_processes import command_of, environment_of, process_alive

GRACE_S = 10.0
OURS = ("agents.", "jobs.", "console.", "tests.")
# A process of the product has these until it ends: they wait for work, or for a name server.
OF_THE_PROCESS = (
    ("agents.infra.outbox", "_work"),
    ("agents.infra.name_lookup", "_look_up"),
    ("jobs.maintenance.checks", "work"),
    ("jobs.notifications.sender", "work"),
)


def threads():
    """Return the living threads that run code of ours."""
    return {thread for thread in threading.enumerate() if is_ours(thread)}


def is_ours(thread):
    target = getattr(thread, "_target", None) or thread.run
    while isinstance(target, functools.partial):
        target = target.func
    module, name = getattr(target, "__module__", None) or "", getattr(target, "__name__", "")
    return module.startswith(OURS) and (module, name) not in OF_THE_PROCESS


def children():
    """Return the living processes that this one has started, without those of the harness: a host or a product is
    shared by many tests, any of which may start it again, and ends with its fixture."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        # The thread may end meanwhile; a kernel may come without this file, and then nothing is found.
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children") as listed:
            found.update(int(pid) for pid in listed.read().split())
    # Python's own, which stays as long as this process does, once a test has used shared memory.
    found.discard(getattr(resource_tracker._resource_tracker, "_pid", None))
    return {pid for pid in found if process_alive(pid) and not leftovers.owner_of(environment_of(pid))}


def still_there(look, before):
    """Return what is there now and was not before. Gives it some seconds to end."""
    deadline = time.monotonic() + GRACE_S
    while (left := look() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def described(left):
    return ", ".join(
        sorted(
            f"process {each} ({command_of(each)[:200]})"
            if isinstance(each, int)
            else f"thread {each.name!r} of {getattr(each, '_target', None) or type(each)}"
            for each in left
        )
    )
