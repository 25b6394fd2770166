"""A shell in the web process: on the event loop as long as nothing has to be waited for, in a thread where it has.

A hand-over from one thread to another costs a key a good part of what its whole way takes. So the loop itself sends
what is typed and fetches what has come. What the host does not take at once, a paste, waits in the shell's own thread,
and what is typed meanwhile behind it.

Output is fetched only while less than WINDOW of it is unacknowledged by the terminal in the browser; beyond that the
SSH window fills and the program that prints is made to wait. Input never waits for output: a paste into a program that
answers with a flood would otherwise stop for good.
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
MAX_INPUT = 512 * 1024
# Input is acknowledged in steps of this, so that a keystroke costs no message back.
ACK_STEP = 32 * 1024
# Output that cannot be fetched, because the connection is busy with itself, is asked for again after this.
RETRY_READ_S = 0.01


class Shell(Protocol):
    """What agents/ssh/pty.py opens."""

    def watch(self, arrived: Callable[[], None]) -> None: ...
    def read(self) -> bytes | None: ...
    def write_now(self, data: bytes) -> bool: ...
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
        self._delivered = self._acked = self._accepted = self._reported = 0
        self._input: queue.SimpleQueue[bytes | tuple[int, int] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._shell: Shell | None = None
        self._closed = False
        self._retry_timer: asyncio.TimerHandle | None = None
        threading.Thread(target=self._serve, name="shell", daemon=True).start()

    def output(self) -> bytes:
        """What came since the last call."""
        data = b"".join(self._output)
        self._output.clear()
        return data

    def ack(self, total: int) -> None:
        self._acked = max(self._acked, min(total, self._delivered))
        self._read()

    def write(self, data: bytes) -> bool:
        """False, and not taken, when the other end sends without waiting for us."""
        if self._accepted + len(data) - self.written > MAX_INPUT:
            return False
        # At once, if nothing that was typed before is still on its way through the thread.
        shell = self._shell if self.open and self._accepted == self.written else None
        self._accepted += len(data)
        if shell is not None and shell.write_now(data):
            if self._count_written(data):
                self._changed()
        else:
            self._input.put(data)
        return True

    def resize(self, cols: int, rows: int) -> None:
        self._input.put((cols, rows))

    def close(self) -> None:
        """May block for a moment: to be called in a thread."""
        with self._lock:
            self._closed = True
            shell = self._shell
        self._input.put(None)
        if shell is not None:
            shell.close()

    def _serve(self) -> None:
        """The shell's thread: opens it, then writes what could not be written at once."""
        try:
            shell = self._opening()
            with self._lock:
                self._shell, closed = shell, self._closed
            if closed:
                shell.close()
                return
            self._call_on_loop(self._opened, shell)
            self._write(shell)
        except Exception as problem:
            self._call_on_loop(self._end, problem)

    def _write(self, shell: Shell) -> None:
        while (item := self._input.get()) is not None:
            if not isinstance(item, bytes):
                shell.resize(*item)
                continue
            shell.write(item)
            if self._count_written(item):
                self._call_on_loop(self._changed)

    def _count_written(self, data: bytes) -> bool:
        """The host took it. That is no news for anybody with a key; with a step of a paste it is."""
        self.written += len(data)
        if self.written - self._reported < ACK_STEP:
            return False
        self._reported = self.written
        return True

    def _call_on_loop(self, what: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *args)
        except RuntimeError:
            log.debug("The event loop has gone; so has whoever looked at this shell.")

    def _opened(self, shell: Shell) -> None:
        self.open = True
        self._changed()
        shell.watch(self._read)
        self._read()

    def _read(self) -> None:
        """Fetch what has come, as far as the browser keeps up."""
        shell = self._shell if self.open else None
        while shell is not None and not self.ended and self._delivered - self._acked < WINDOW:
            try:
                data = shell.read()
            except BlockingIOError:
                if self._retry_timer is None:
                    self._retry_timer = self._loop.call_later(RETRY_READ_S, self._read_again)
                return
            if data is None:
                self._end(None)
                return
            if not data:
                return
            self._delivered += len(data)
            self._deliver(data)

    def _read_again(self) -> None:
        self._retry_timer = None
        if not self._closed:  # else one that stays busy would be asked for ever, for nobody
            self._read()

    def _deliver(self, data: bytes) -> None:
        if self._output or not self._direct(data):
            self._output.append(data)
            self._changed()

    def _end(self, problem: Exception | None) -> None:
        self.ended = True
        self.problem = self.problem or problem
        self._changed()
