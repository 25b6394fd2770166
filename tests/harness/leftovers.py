"""Clear what killed test runs left: all that a harness starts carries the identity of its owner."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import tempfile

from tests.harness.wait_and_processes import environment_of, pids

OWNER = "TRAINYARD_TEST_OWNER"
PREFIX = "trainyard-harness-"


def start_ticks(pid):
    """Return when a process started, in clock ticks: together with the PID that identifies it for good."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except OSError:
        return "gone"


def identity():
    return f"{os.getpid()}.{start_ticks(os.getpid())}"


def owned_environment(extra=None):
    """Return the environment for a process that belongs to this harness."""
    return {**os.environ, **(extra or {}), OWNER: identity()}


def product_environment():
    """The same for a process of the product, without the machine's settings, which must not reach it."""
    return {name: value for name, value in owned_environment().items() if not is_setting(name)}


def is_setting(name):
    return name in ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "DJANGO_SETTINGS_MODULE") or (
        name.startswith("TRAINYARD_") and name != OWNER
    )


def scratch(name):
    """Make a directory that other users (postgres, sshd) may traverse; the next run clears it if this one cannot."""
    path = pathlib.Path(tempfile.mkdtemp(prefix=f"{PREFIX}{identity()}-{name}-", dir=scratch_root()))
    path.chmod(0o755)
    return path


def scratch_root():
    """Return a short path on purpose: Unix socket paths have at most 107 bytes."""
    return tempfile.gettempdir()


def clear():
    """Kill the processes and delete the directories of harnesses that have ended."""
    for pid in pids():
        owner = owner_of(environment_of(pid))
        if owner and not is_alive(owner):
            kill(pid)
    for path in pathlib.Path(scratch_root()).glob(f"{PREFIX}*"):
        if not is_alive(path.name[len(PREFIX) :].split("-")[0]):
            shutil.rmtree(path, ignore_errors=True)


def owner_of(environment):
    for entry in environment.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == OWNER.encode():
            return value.decode(errors="replace")
    return None


def is_alive(owner):
    pid, _, ticks = owner.partition(".")
    return pid.isdigit() and start_ticks(int(pid)) == ticks


def kill(pid):
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
