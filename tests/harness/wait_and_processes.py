"""Run small commands, wait for conditions, and read /proc."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from glob import glob

# A limit for what hangs, not a measurement: a busy machine may be many times slower than an idle one.
PATIENCE_S = 120.0
# Where "within seconds" or "at once" is promised: what a user would still call so, on a machine busy with tests.
PROMISED_S = 15.0
MAX_PAUSE_S = 0.2


def run(*command, stdin=None, check=True, timeout=PATIENCE_S):
    """Run a command to its end; a failure says which command and what it printed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, input=stdin, text=True, capture_output=True, timeout=timeout)
    if check and done.returncode:
        said = (done.stderr or done.stdout).strip()[-800:]
        raise RuntimeError(f"{' '.join(words)[:300]}: exit {done.returncode}: {said}")
    return done


def succeeds(*command):
    """Whether the command exits with 0: used to probe the machine for features."""
    try:
        return run(*command, check=False).returncode == 0
    except OSError:
        return False


def wait_for(condition, what, timeout=PATIENCE_S, every=0.03, dump=None):
    """Poll until condition() is true and return its value; the failure names what was waited for.

    Polls less and less often, because polling takes processor time from the product.
    """
    deadline, pause = time.monotonic() + timeout, every
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            details = f"\n{dump()}" if dump else f" (last value: {value!r})"
            raise AssertionError(f"waited {timeout:.0f} s in vain for {what}{details}")
        time.sleep(pause)
        pause = max(every, min(pause * 1.2, MAX_PAUSE_S))


def process_alive(pid):
    """True while the process exists and is more than a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children_of(pid):
    """Return the pids of what the threads of a process have started and not awaited; none if it is gone."""
    found = []
    for children in glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError), open(children) as file:
            found += [int(child) for child in file.read().split()]
    return found


def environment_of(pid, proc="/proc"):
    """Return the environment that a process was started with, as bytes; empty if it is gone or may not be read."""
    try:
        with open(f"{proc}/{pid}/environ", "rb") as environ:
            return environ.read()
    except OSError:
        return b""


def command_of(pid, proc="/proc"):
    """Return a process's argv, joined by spaces."""
    try:
        with open(f"{proc}/{pid}/cmdline", "rb") as cmdline:
            return cmdline.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def pids(proc="/proc"):
    return [int(name) for name in os.listdir(proc) if name.isdigit()]
