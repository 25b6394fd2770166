"""Keeps a few child processes running: starts them, restarts those that exit, stops all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

TETHER = Path(__file__).with_name("tether.py")
FIRST_PAUSE_S = 0.2
MAX_PAUSE_S = 10.0
# A child that ran this long was healthy: after its next exit the pauses begin again with the shortest.
HEALTHY_AFTER_S = 20.0
STOP_GRACE_S = 8.0
MAX_LINE = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The definition of one child. Children of a lower `stage` start first and stop last."""

    name: str
    argv: tuple[str, ...]
    stage: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    pass_fds: tuple[int, ...] = ()


class Child:
    """A process that should run, and the record of its starts and exits."""

    def __init__(self, process: Process, say: Callable[[str], None]) -> None:
        self.process = process
        self.say = say
        self.popen: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.start_due_at = 0.0
        self.deaths = 0

    def check(self, now: float) -> None:
        """Notice an exit; start the process when that is due. The supervisor's only thread calls this repeatedly."""
        if self.popen is not None and self.popen.poll() is not None:
            self.record_exit(self.popen.returncode, now)
        if self.popen is None and now >= self.start_due_at:
            self.start(now)

    def record_exit(self, returncode: int, now: float) -> None:
        self.popen = None
        self.deaths = 1 if now - self.started_at > HEALTHY_AFTER_S else self.deaths + 1
        pause = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** (self.deaths - 1))
        self.start_due_at = now + pause
        how = f"was killed by signal {-returncode}" if returncode < 0 else f"exited with code {returncode}"
        self.say(f"{self.process.name} {how}; starting it again in {pause:.1f} s")

    def start(self, now: float) -> None:
        # In a session of its own: Ctrl-C reaches only the supervisor, which then stops the children in order.
        self.popen = subprocess.Popen(
            [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *self.process.argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.process.env},
            pass_fds=self.process.pass_fds,
            start_new_session=True,
        )
        self.started_at = now
        assert self.popen.stdout is not None
        threading.Thread(
            target=relay, args=(self.popen.stdout, self.process.name, self.say), daemon=True
        ).start()

    def signal(self, number: int) -> None:
        if self.popen is not None and self.popen.poll() is None:
            os.killpg(self.popen.pid, number)

    def wait(self, deadline: float) -> bool:
        """True when the process ends before the deadline."""
        if self.popen is None:
            return True
        try:
            self.popen.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True


def relay(stream: IO[bytes], name: str, say: Callable[[str], None]) -> None:
    """Print the output of a child line by line, with the child's name in front."""
    with stream:
        while line := stream.readline(MAX_LINE):
            say(f"{name:<10} | {line.decode(errors='replace').rstrip()}")


class Supervisor:
    """All children of one `trainyard up`."""

    def __init__(self, processes: Sequence[Process], say: Callable[[str], None]) -> None:
        self.children = {process.name: Child(process, say) for process in processes}
        self.say = say
        self.stopping = threading.Event()
        self.stop_at_once = threading.Event()

    def run(self) -> None:
        """Run until `stopping` is set. Children die with this thread, because PDEATHSIG is bound to the thread."""
        try:
            while not self.stopping.is_set():
                for child in self.children.values():
                    if not self.stopping.is_set():
                        child.check(time.monotonic())
                self.stopping.wait(0.1)
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop the web process and the workers first and the broker last. Kill a process that does not stop in time."""
        for stage in sorted({child.process.stage for child in self.children.values()}, reverse=True):
            group = [child for child in self.children.values() if child.process.stage == stage]
            for child in group:
                child.signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_GRACE_S
            while not self.stop_at_once.is_set() and time.monotonic() < deadline:
                if all(child.wait(time.monotonic() + 0.05) for child in group):
                    break
            for child in group:
                if not child.wait(time.monotonic()):
                    child.signal(signal.SIGKILL)
                    child.wait(time.monotonic() + STOP_GRACE_S)

    def ask_to_stop(self) -> None:
        """Stop the children with SIGTERM. When this is called a second time, kill them at once."""
        if self.stopping.is_set():
            self.stop_at_once.set()
        self.stopping.set()

    def restart(self, name: str, why: str) -> None:
        """Kill a child that runs but does not work. `check` starts it again."""
        self.say(f"{name} {why}; restarting it")
        self.children[name].signal(signal.SIGKILL)
