"""Background tasks: work that may take long, or hang on a driver or a user's file system."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import Any, Callable, Dict

from agents.runner.forks import fork_detached
from agents.runner.wire import MAX_PAYLOAD


class BackgroundTask:
    """One task: a child process does it and answers through a pipe."""

    def __init__(
        self,
        directory: str,
        kind: str,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        timeout_s: float,
    ) -> None:
        self.kind, self.done = kind, done
        self.deadline = time.monotonic() + timeout_s
        self.fd, write = os.pipe()
        os.set_blocking(self.fd, False)
        self._read = b""

        def run() -> None:
            data = memoryview(json.dumps(work()).encode())
            while data:
                data = data[os.write(write, data) :]

        try:
            self.pid = fork_detached(run, directory, {write}, "trainyard-task %s" % kind)
        except OSError:
            os.close(self.fd)
            raise
        finally:
            os.close(write)

    def read(self) -> bool:
        """Read from the pipe. True when all was read, or nothing more will come."""
        try:
            data = os.read(self.fd, 1 << 20)
        except (BlockingIOError, InterruptedError):
            return False
        self._read += data
        return not data or len(self._read) > MAX_PAYLOAD

    def answer(self) -> Any:
        """The child's answer; None when it failed, was killed, or took too long."""
        os.close(self.fd)
        try:
            return json.loads(self._read.decode("utf-8"))
        except ValueError:
            return None


class BackgroundTasks:
    """The tasks that are under way: one of a kind at a time."""

    def __init__(self) -> None:
        self.directory = "/"
        self.by_fd: Dict[int, BackgroundTask] = {}

    def start(
        self, kind: str, work: Callable[[], Any], done: Callable[[Any], None], timeout_s: float = 60.0
    ) -> bool:
        """Have a child do `work`, and call `done` with its answer. False if a task of this kind is under way."""
        if any(task.kind == kind for task in self.by_fd.values()):
            return False
        try:
            task = BackgroundTask(self.directory, kind, work, done, timeout_s)
        except OSError:
            return False  # no process, no descriptor: the caller tries again
        self.by_fd[task.fd] = task
        return True

    def read(self, fd: int) -> None:
        if self.by_fd[fd].read():
            task = self.by_fd.pop(fd)
            task.done(task.answer())

    def kill_overdue(self) -> None:
        """Kill a child that hangs. If even that does not end it, its pipe stays open and no other task of its kind
        starts."""
        for task in self.by_fd.values():
            if time.monotonic() >= task.deadline:
                with contextlib.suppress(OSError):
                    os.kill(task.pid, signal.SIGKILL)
