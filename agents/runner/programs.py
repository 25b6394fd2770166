"""Programs of this host that the runner runs for their output, with a timeout: nvidia-smi, for example, may hang."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Dict, List, NoReturn, Tuple

from agents.runner.forks import close_all_but, default_signals, execute
from agents.runner.processes import read_process, signal_process

MAX_OUTPUT = 1 << 20


class Program:
    """A program of this host: started now, read later, left behind if it hangs.

    By fork and exec alone: `subprocess` imports threads, and to look after those costs each fork of ours more than all
    else in it.
    """

    def __init__(
        self, command: List[str], with_stderr: bool = True, env: Dict[str, str] | None = None
    ) -> None:
        self._name = command[0]
        self._output = b""
        self._ended = False
        self._failed = ""
        self._pid, self._ticks = 0, -1
        self._fd = write = -1
        try:
            self._fd, write = os.pipe()
            os.set_blocking(self._fd, False)
            self._pid = os.fork()
            if self._pid == 0:
                _become(command, write, with_stderr, env)
            process = read_process(self._pid)
            self._ticks = process.ticks if process else -1
        except OSError as error:  # no process, no descriptor
            self._failed, self._ended = str(error), True
        finally:
            if write >= 0:
                os.close(write)

    def read(self) -> bool:
        """Read its output. True when there will be no more."""
        for _ in range(64):
            if self._ended:
                break
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                break
            if len(self._output) < MAX_OUTPUT:
                self._output += data
            self._ended = not data
        return self._ended

    @property
    def output(self) -> str:
        return self._output[:MAX_OUTPUT].decode("utf-8", "replace")

    def answer(self, timeout: float) -> Tuple[int, str]:
        """(status, output). A program that hangs, as nvidia-smi can, counts as failed."""
        if self._failed:
            self.close()
            return 127, self._failed
        try:
            status = self._wait(timeout)
            if status is None:
                self.kill()
                self._wait(1.0)  # it may hang in the kernel, in a driver
                return 124, "%s did not answer within %g s" % (self._name, timeout)
            self.read()
            return status, self.output
        finally:
            self.close()

    def _wait(self, timeout: float) -> int | None:
        until = time.monotonic() + timeout
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while True:
            over = self.read()
            try:
                done, status = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:
                return 0  # reaped elsewhere: its output is here
            if done:
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            left = until - time.monotonic()
            if left <= 0:
                return None
            if over:
                time.sleep(min(0.002, left))
            else:
                poll.poll(min(0.02, left) * 1000)

    def kill(self) -> None:
        signal_process(self._pid, self._ticks, signal.SIGKILL)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def _become(command: List[str], stdout: int, with_stderr: bool, env: Dict[str, str] | None) -> NoReturn:
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(stdout, 1)
        os.dup2(stdout if with_stderr else null, 2)
        close_all_but({0, 1, 2})
        default_signals()
        execute(command, dict(os.environ) if env is None else env)
    except OSError as error:
        os.write(1, str(error).encode())
    finally:
        os._exit(127)


def start_program(command: List[str]) -> Tuple[int, int]:
    """(pid, descriptor) of a program whose output, of both kinds, is read while it runs."""
    fd, write = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            _become(command, write, True, None)
    finally:
        os.close(write)
    return pid, fd


def output_of(
    command: List[str], timeout: float = 10.0, env: Dict[str, str] | None = None
) -> Tuple[int, str]:
    """(status, output) of a program. `env`: its whole environment; without it, ours."""
    return Program(command, env=env).answer(timeout)
