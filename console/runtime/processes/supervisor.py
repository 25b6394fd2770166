"""Keeps a few child processes running: starts them, restarts those that exit, stops all of them.

It runs no threads, because it forks its children (forks.py).
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from console.runtime.processes import forks

FIRST_PAUSE_S = 0.2
MAX_PAUSE_S = 10.0
# A child that ran this long was healthy: after its next exit the pauses begin again with the shortest.
HEALTHY_AFTER_S = 20.0
STOP_GRACE_S = 8.0
LOOK_EVERY_S = 0.1
MAX_LINE = 64 * 1024

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The definition of one child. Children of a lower `stage` start first and stop last."""

    name: str
    work: forks.Work
    stage: int = 1
    keep_fds: tuple[int, ...] = ()


class Child:
    """A process that should run, and the record of its starts and exits."""

    def __init__(self, process: Process, say: Say) -> None:
        self.process = process
        self.say = say
        self.fork: forks.Fork | None = None
        self.started_at = 0.0
        self.start_due_at = 0.0
        self.deaths = 0

    def check(self, now: float) -> forks.Fork | None:
        """Notice an exit; start the process when that is due, and return it. The supervisor calls this repeatedly."""
        if self.fork is not None and (code := self.fork.exit_code()) is not None:
            self.record_exit(code, now)
        return self.start(now) if self.fork is None and now >= self.start_due_at else None

    def record_exit(self, returncode: int, now: float) -> None:
        self.fork = None
        self.deaths = 1 if now - self.started_at > HEALTHY_AFTER_S else self.deaths + 1
        pause = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** (self.deaths - 1))
        self.start_due_at = now + pause
        how = f"was killed by signal {-returncode}" if returncode < 0 else f"exited with code {returncode}"
        self.say(f"{self.process.name} {how}; starting it again in {pause:.1f} s")

    def start(self, now: float) -> forks.Fork:
        self.fork = forks.start(self.process.name, self.process.work, self.process.keep_fds)
        self.started_at = now
        return self.fork

    def signal(self, number: int) -> None:
        if self.is_running():
            assert self.fork is not None
            try:
                os.killpg(self.fork.pid, number)
            except ProcessLookupError:  # it was forked just now, and leads no group yet
                os.kill(self.fork.pid, number)

    def is_running(self) -> bool:
        return self.fork is not None and self.fork.exit_code() is None


class Relay:
    """Prints the output of the children line by line, each with the child's name in front."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.pipes = selectors.DefaultSelector()
        self.begun: dict[int, bytes] = {}

    def follow(self, pipe: int, name: str) -> None:
        self.pipes.register(pipe, selectors.EVENT_READ, name)
        self.begun[pipe] = b""

    def look(self, timeout: float) -> None:
        """Print what has come; wait for it until the timeout."""
        for key, _ in self.pipes.select(timeout):
            self._read(key.fd, key.data)

    def _read(self, pipe: int, name: str) -> None:
        block = os.read(pipe, MAX_LINE)
        *lines, rest = (self.begun[pipe] + block).split(b"\n")
        if rest and (len(rest) >= MAX_LINE or not block):
            lines.append(rest)
            rest = b""
        for line in lines:
            self.say(f"{name:<10} | {line.decode(errors='replace').rstrip()}")
        self.begun[pipe] = rest
        if not block:
            self._end(pipe)

    def _end(self, pipe: int) -> None:
        self.pipes.unregister(pipe)
        del self.begun[pipe]
        os.close(pipe)

    def close(self) -> None:
        for pipe in list(self.begun):
            self._end(pipe)
        self.pipes.close()


class Supervisor:
    """All children of one `trainyard up`."""

    def __init__(self, processes: Sequence[Process], say: Say) -> None:
        self.children = {process.name: Child(process, say) for process in processes}
        self.say = say
        self.relay = Relay(say)
        self.stopping = self.stop_at_once = False

    def run(self, look: Callable[[], None] = lambda: None) -> None:
        """Run until somebody asks to stop; call `look` again and again. Children die with this thread, because
        PDEATHSIG is bound to the thread."""
        try:
            while not self.stopping:
                self.check(time.monotonic())
                self.relay.look(LOOK_EVERY_S)
                look()
        finally:
            self.stop()

    def check(self, now: float) -> None:
        for child in self.children.values():
            if not self.stopping and (started := child.check(now)):
                self.relay.follow(started.output, child.process.name)

    def stop(self) -> None:
        """Stop the web process and the workers first and the broker last. Kill a process that does not stop in time."""
        for stage in sorted({child.process.stage for child in self.children.values()}, reverse=True):
            group = [child for child in self.children.values() if child.process.stage == stage]
            for child in group:
                child.signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_GRACE_S
            while not self.stop_at_once and time.monotonic() < deadline and any_runs(group):
                self.relay.look(LOOK_EVERY_S / 5)
            for child in group:
                child.signal(signal.SIGKILL)
            deadline = time.monotonic() + STOP_GRACE_S
            while time.monotonic() < deadline and any_runs(group):
                self.relay.look(LOOK_EVERY_S / 5)
        self.relay.look(0)
        self.relay.close()

    def ask_to_stop(self) -> None:
        """Stop the children with SIGTERM. When this is called a second time, kill them at once."""
        self.stop_at_once = self.stopping
        self.stopping = True

    def restart(self, name: str, why: str) -> None:
        """Kill a child that runs but does not work. `check` starts it again."""
        self.say(f"{name} {why}; restarting it")
        self.children[name].signal(signal.SIGKILL)


def any_runs(group: Iterable[Child]) -> bool:
    return any(child.is_running() for child in group)
