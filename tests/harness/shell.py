"""Run small commands and wait for conditions: the two things every part of the harness does."""

from __future__ import annotations

import os
import subprocess
import time

# For what hangs, not to measure: a machine that is busy with other things may be many times slower than a quiet one.
PATIENCE_S = 120.0
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
    """Whether this machine can do that: used to probe for features."""
    try:
        return run(*command, check=False).returncode == 0
    except OSError:
        return False


def wait_for(condition, what, timeout=PATIENCE_S, every=0.03, dump=None):
    """Poll until condition() is true and return its value; the failure names what was waited for.

    What takes long is looked at less often: looking costs the product's own processor time.
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


def environment_of(pid, proc="/proc"):
    """The environment a process was started with, as bytes; empty when it is gone or not ours to see."""
    try:
        with open(f"{proc}/{pid}/environ", "rb") as environ:
            return environ.read()
    except OSError:
        return b""


def command_of(pid, proc="/proc"):
    """A process's argv, joined by spaces."""
    try:
        with open(f"{proc}/{pid}/cmdline", "rb") as cmdline:
            return cmdline.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def pids(proc="/proc"):
    return [int(name) for name in os.listdir(proc) if name.isdigit()]
