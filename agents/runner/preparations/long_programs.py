"""Programs that a preparation runs: git, pip. They may take long, their output is kept, and they end with it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from typing import Callable, Dict, List

from agents.runner.files import free_bytes, kept_free
from agents.runner.forks import default_signals
from agents.runner.linux import die_with_parent

LOOK_S = 0.25
TAIL_BYTES = 4096

# A program prints its progress again and again on one line, and colours.
_OVERWRITTEN = re.compile(rb"[^\r\n]*\r(?!\n)")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


class Unprepared(Exception):
    """What was to be made cannot be made. `whose`: `user` for what the job brought, `host` for what this host lacks.

    `reason` is the word for it on the wire; the message is for people.
    """

    def __init__(self, whose: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.whose, self.reason = whose, reason


class LongProgram:
    """Runs programs one after the other; all their output is in one file."""

    def __init__(self, output: str, env: Dict[str, str], timeout_s: float) -> None:
        self.output, self.env = output, env
        self.deadline = time.monotonic() + timeout_s

    def run(self, command: List[str], directory: str, look: Callable[[str], None] = lambda tail: None) -> int:
        """The exit status of a program. `look` gets the end of the output as it grows. Raises Unprepared."""
        with open(self.output, "ab") as file, open(os.devnull, "rb") as null:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=null,
                    stdout=file,
                    stderr=file,
                    cwd=directory,
                    env=self.env,
                    start_new_session=True,
                    preexec_fn=_prepare,
                )
            except FileNotFoundError:
                text = "%s is not installed on this host" % os.path.basename(command[0])
                raise Unprepared("host", "missing_program", text) from None
        try:
            return self._watch(process, command, directory, look)
        finally:
            end_group(process)

    def _watch(
        self,
        process: subprocess.Popen[bytes],
        command: List[str],
        directory: str,
        look: Callable[[str], None],
    ) -> int:
        while True:
            try:
                return process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                pass
            look(self.tail(400))
            if free_bytes(directory) < kept_free(directory) // 2:
                raise Unprepared("host", "disk_full", "the disk of this host is full")
            if time.monotonic() > self.deadline:
                name = os.path.basename(command[0])
                raise Unprepared("user", "timeout", "%s was not finished in time" % name)

    def tail(self, size: int = TAIL_BYTES) -> str:
        """The end of the output as a person would see it in a terminal."""
        return tail_of(self.output, size)


def tail_of(path: str, size: int = TAIL_BYTES) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8 * size))
            data = file.read(8 * size)
    except OSError:
        return ""
    return _CONTROL.sub("", _OVERWRITTEN.sub(b"", data).decode("utf-8", "replace"))[-size:].strip()


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what the program has left behind, also when it ended by itself."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _prepare() -> None:
    default_signals()
    die_with_parent()
