"""Programs of this host that are asked something, and may hang."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from typing import List, Tuple


class Program:
    """A program of this host that is asked something: begun now, heard later, left behind if it hangs."""

    def __init__(self, command: List[str]) -> None:
        self._name = command[0]
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._failed = ""
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._file,
                stderr=self._file,
                start_new_session=True,
            )
        except OSError as error:
            self._failed = str(error)

    def answer(self, timeout: float) -> Tuple[int, str]:
        """(status, what it printed). One that hangs, as nvidia-smi can, counts as failed."""
        with self._file:
            if self._failed:
                return 127, self._failed
            try:
                status = self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
                with contextlib.suppress(
                    subprocess.TimeoutExpired
                ):  # it may hang in the kernel, as drivers do
                    self._process.wait(1)
                return 124, "%s did not answer within %g s" % (self._name, timeout)
            self._file.seek(0)
            return status, self._file.read(1 << 20).decode("utf-8", "replace")


def output_of(command: List[str], timeout: float = 10.0) -> Tuple[int, str]:
    return Program(command).answer(timeout)
