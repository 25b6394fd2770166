"""A shell's two threads in the web process: one carries its output, one its input, each at the other end's pace.

paramiko blocks, so both ways have a thread. Output is read only while less than WINDOW of it is unacknowledged by the
terminal in the browser; beyond that the SSH window fills and the program that prints is made to wait. Input never
waits for output: a paste into a program that answers with a flood would otherwise stop for good.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

WINDOW = 256 * 1024
# What the browser may send ahead of what the host has taken; it keeps to half of this by itself (static/shell.js).
INPUT_MOST = 512 * 1024
# Input is acknowledged in steps of this, so that a keystroke costs no message back.
ACK_STEP = 32 * 1024


class Shell(Protocol):
    """What agents/pty.py opens."""

    def read(self) -> bytes: ...
    def write(self, data: bytes) -> None: ...
    def resize(self, cols: int, rows: int) -> None: ...
    def close(self) -> None: ...


class Terminal:
    """Used on the event loop; `changed` is called there whenever there is something new in the attributes.

    `direct` is offered output first: an echo that can leave at once needs no task to carry it. What it does not take
    waits for `output`, and so does all that comes behind.
    """

    def __init__(
        self, opening: Callable[[], Shell], changed: Callable[[], None], direct: Callable[[bytes], bool]
    ) -> None:
        self.open = False
        self.ended = False
        self.problem: Exception | None = None
        self.written = 0
        self._opening = opening
        self._changed = changed
        self._direct = direct
        self._loop = asyncio.get_running_loop()
        self._output: list[bytes] = []
        self._credit = threading.Condition()
        self._delivered = self._acked = self._accepted = 0
        self._input: queue.SimpleQueue[bytes | tuple[int, int] | None] = queue.SimpleQueue()
        self._shell: Shell | None = None
        self._closed = False
        threading.Thread(target=self._read, name="shell output", daemon=True).start()

    def output(self) -> bytes:
        """What came since the last call."""
        data = b"".join(self._output)
        self._output.clear()
        return data

    def ack(self, total: int) -> None:
        with self._credit:
            self._acked = max(self._acked, min(total, self._delivered))
            self._credit.notify()

    def write(self, data: bytes) -> bool:
        """False, and not taken, when the other end sends without waiting for us."""
        if self._accepted + len(data) - self.written > INPUT_MOST:
            return False
        self._accepted += len(data)
        self._input.put(data)
        return True

    def resize(self, cols: int, rows: int) -> None:
        self._input.put((cols, rows))

    def close(self) -> None:
        """May block for a moment: to be called in a thread."""
        with self._credit:
            self._closed = True
            self._credit.notify()
            shell = self._shell
        self._input.put(None)
        if shell is not None:
            shell.close()

    def _read(self) -> None:
        try:
            shell = self._opening()
            with self._credit:
                self._shell, closed = shell, self._closed
            if closed:
                shell.close()
                return
            threading.Thread(target=self._write, args=(shell,), name="shell input", daemon=True).start()
            self._tell(self._opened)
            while self._may_read():
                data = shell.read()
                if not data:
                    break
                self._delivered += len(data)
                self._tell(self._deliver, data)
            self._tell(self._end, None)
        except Exception as problem:
            self._tell(self._end, problem)

    def _may_read(self) -> bool:
        with self._credit:
            self._credit.wait_for(lambda: self._closed or self._delivered - self._acked < WINDOW)
            return not self._closed

    def _write(self, shell: Shell) -> None:
        told = 0
        try:
            while (item := self._input.get()) is not None:
                if isinstance(item, bytes):
                    shell.write(item)
                    self.written += len(item)
                    # A key that the host took is no news for anybody; a step of a paste is.
                    if self.written - told >= ACK_STEP:
                        told = self.written
                        self._tell(self._changed)
                else:
                    shell.resize(*item)
        except Exception as problem:
            self._tell(self._end, problem)

    def _tell(self, what: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *args)
        except RuntimeError:
            log.debug("The event loop has gone; so has whoever looked at this shell.")

    def _opened(self) -> None:
        self.open = True
        self._changed()

    def _deliver(self, data: bytes) -> None:
        if self._output or not self._direct(data):
            self._output.append(data)
            self._changed()

    def _end(self, problem: Exception | None) -> None:
        self.ended = True
        self.problem = self.problem or problem
        self._changed()
