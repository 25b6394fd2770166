"""Errands: what may take long, or hang on a driver or a user's file system."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import Any, Callable, Dict

from agents.runner.forks import fork_detached
from agents.runner.wire import MAX_PAYLOAD


class Errand:
    """What may take long, or hang on a driver or a user's file system: done by a child, answered through a pipe."""

    def __init__(
        self,
        directory: str,
        kind: str,
        act: Callable[[], Any],
        done: Callable[[Any], None],
        patience_s: float,
    ) -> None:
        self.kind, self.done = kind, done
        self.deadline = time.monotonic() + patience_s
        self.fd, write = os.pipe()
        os.set_blocking(self.fd, False)
        self._heard = b""

        def work() -> None:
            data = memoryview(json.dumps(act()).encode())
            while data:
                data = data[os.write(write, data) :]

        try:
            self.pid = fork_detached(work, directory, {write}, "trainyard-errand %s" % kind)
        except OSError:
            os.close(self.fd)
            raise
        finally:
            os.close(write)

    def hear(self) -> bool:
        """True when all has been heard, or nothing more will be."""
        try:
            data = os.read(self.fd, 1 << 20)
        except (BlockingIOError, InterruptedError):
            return False
        self._heard += data
        return not data or len(self._heard) > MAX_PAYLOAD

    def answer(self) -> Any:
        """What it found, None when it failed, was killed, or took too long."""
        os.close(self.fd)
        try:
            return json.loads(self._heard.decode("utf-8"))
        except ValueError:
            return None


class Errands:
    """Those that are on their way: one of a kind at a time."""

    def __init__(self) -> None:
        self.directory = "/"
        self.by_fd: Dict[int, Errand] = {}

    def send(
        self, kind: str, act: Callable[[], Any], done: Callable[[Any], None], patience_s: float = 60.0
    ) -> bool:
        """Have `act` done by a child and `done` called with its answer. False if one of its kind is on its way."""
        if any(errand.kind == kind for errand in self.by_fd.values()):
            return False
        try:
            errand = Errand(self.directory, kind, act, done, patience_s)
        except OSError:
            return False  # no process, no descriptor: whoever wants it asks again
        self.by_fd[errand.fd] = errand
        return True

    def hear(self, fd: int) -> None:
        if self.by_fd[fd].hear():
            errand = self.by_fd.pop(fd)
            errand.done(errand.answer())

    def hurry(self) -> None:
        """A child that hangs is killed. If even that does not end it, its pipe stays open and its kind stays out."""
        for errand in self.by_fd.values():
            if time.monotonic() >= errand.deadline:
                with contextlib.suppress(OSError):
                    os.kill(errand.pid, signal.SIGKILL)
