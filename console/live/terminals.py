"""A connection to a shell, in the web process. The event loop does all that does not wait; a thread does the rest.

Passing a keystroke to another thread costs a large part of its whole travel time. So the event loop itself sends the
input and reads the output. Input that the host does not take at once (a paste) waits in the shell's own thread, and
later input waits behind it.

Output is read only while the terminal in the browser has less than WINDOW of it to acknowledge. Beyond that the SSH
window fills up, and the program that prints must wait. Input never waits for output: otherwise a paste into a program
that answers with much output would block for ever.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol

from agents.runner.shells.frames import BEAT_S, PATIENT_S
from console.live import output_share

log = logging.getLogger(__name__)

WINDOW = 256 * 1024
# How much the browser may send ahead of what the host has taken. The browser limits itself to half of this
# (static/shell.js).
MAX_INPUT = 512 * 1024
# Input is acknowledged in steps of this size, so that a keystroke needs no message back.
ACK_STEP = 32 * 1024
# When output cannot be read because the connection is busy, reading is tried again after this time.
RETRY_READ_S = 0.01

# What a host tells about its shell between the output: took, lost, end, note (agents/ssh/pty.py).
Event = dict[str, Any]


class Shell(Protocol):
    """The interface of the shell that agents/ssh/pty.py opens."""

    def watch(self, arrived: Callable[[], None], show: Callable[[bytes], bool]) -> None: ...
    @property
    def answer(self) -> Event: ...
    @property
    def problem(self) -> str: ...
    def read(self) -> bytes | Event | None: ...
    def write_now(self, data: bytes) -> bool: ...
    def write(self, data: bytes) -> None: ...
    def beat(self) -> None: ...
    def resize(self, cols: int, rows: int) -> None: ...
    def end(self, reason: str) -> None: ...
    def close(self) -> None: ...


class Terminal:
    """A shell as the event loop uses it. `changed` is called on the loop whenever an attribute has changed.

    Output is offered to `direct` first: an echo that can be sent at once needs no task. Output that `direct` does not
    take, and all output after it, waits for `output`. A host that says nothing for `patience_s` ends it.
    """

    def __init__(
        self,
        opening: Callable[[], Shell],
        changed: Callable[[], None],
        direct: Callable[[bytes], bool],
        patience_s: float = PATIENT_S,
    ) -> None:
        self.open = False
        self.ended = False
        self.problem: Exception | None = None
        self.written = 0
        self._opening = opening
        self._changed = changed
        self._direct = direct
        self._loop = asyncio.get_running_loop()
        self._share = output_share.of_this_loop()
        self._output: list[bytes | Event] = []
        # What was read and does not fit into the window.
        self._rest = b""
        self._delivered = self._acked = self._accepted = self._reported = 0
        self._input: queue.SimpleQueue[bytes | tuple[int, int] | str | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._shell: Shell | None = None
        self._closed = False
        self._retry_timer: asyncio.TimerHandle | None = None
        self._patience_s, self._heard_at = patience_s, 0.0
        threading.Thread(target=self._serve, name="shell", daemon=True).start()

    @property
    def answer(self) -> Event:
        """What the host answered when the shell was opened."""
        return self._shell.answer if self._shell is not None else {}

    def output(self) -> list[bytes | Event]:
        """The output and the events since the last call, in their order."""
        output, self._output = self._output, []
        if all(isinstance(item, bytes) for item in output):
            return [b"".join(output)] if output else []  # type: ignore[arg-type]
        return output

    def ack(self, total: int) -> None:
        self._acked = max(self._acked, min(total, self._delivered))
        self._read()

    def write(self, data: bytes) -> bool:
        """Send input. Returns False and takes nothing when the browser sends too far ahead of the host."""
        if self._accepted + len(data) - self.written > MAX_INPUT:
            return False
        # Write at once if no earlier input is still waiting in the thread.
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

    def end(self, reason: str) -> None:
        """End the shell itself, not only this connection."""
        self._input.put(reason)

    def leave(self) -> None:
        """Read no more output, and forget the socket. Call it on the event loop, before `close`."""
        self._closed = True
        self._output.clear()
        self._changed, self._direct = _nothing, _takes_nothing
        self._share.leave(self._read_some)

    def close(self) -> None:
        """Close the shell. This may block for a moment, so call it in a thread."""
        with self._lock:
            self._closed = True
            shell = self._shell
        self._input.put(None)
        if shell is not None:
            shell.close()

    def _serve(self) -> None:
        """The shell's thread: opens the shell, then writes the input that could not be written at once."""
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
            if isinstance(item, tuple):
                shell.resize(*item)
                continue
            if isinstance(item, str):
                shell.end(item)
                continue
            shell.write(item)
            if self._count_written(item):
                self._call_on_loop(self._changed)

    def _count_written(self, data: bytes) -> bool:
        """Count input that the host took. Returns True once for each ACK_STEP: only then an acknowledgement is due."""
        self.written += len(data)
        if self.written - self._reported < ACK_STEP:
            return False
        self._reported = self.written
        return True

    def _call_on_loop(self, what: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *args)
        except RuntimeError:
            log.debug("A shell has output, but the event loop that serves its browser has ended.")

    def _opened(self, shell: Shell) -> None:
        self.open = True
        self._changed()
        self._heard_at = self._loop.time()
        self._beat_later()
        shell.watch(self._read, self._show)
        self._read()

    def _beat_later(self) -> None:
        self._loop.call_later(BEAT_S, self._beat, self._loop.time() + BEAT_S)

    def _beat(self, due_at: float) -> None:
        """Tell the host that this end is here, and look whether the host is."""
        if self._shell is None or self.ended or self._closed:
            return
        self._shell.beat()
        now = self._loop.time()
        # While the browser takes nothing, or while this process did not run, nothing could be heard.
        if self._is_full() or now - due_at > BEAT_S:
            self._heard_at = now
        if now - self._heard_at > self._patience_s:
            self._end(OSError(f"The host has not answered for {self._patience_s:.0f} s."))
        else:
            self._beat_later()

    def _room(self) -> int:
        return WINDOW - (self._delivered - self._acked)

    def _is_full(self) -> bool:
        return self._room() <= 0

    def _read(self) -> None:
        """Read output as long as the browser keeps up, in turns with other shells."""
        self._share.ask(self._read_some)

    def _read_some(self) -> int:
        """Read what has arrived. Returns how many bytes; 0 when nothing is to be read now."""
        shell = self._shell if self.open else None
        if shell is None or self.ended or self._closed or self._is_full():
            return 0
        try:
            data = self._rest or self._read_output(shell)
        except BlockingIOError:
            if self._retry_timer is None:
                self._retry_timer = self._loop.call_later(RETRY_READ_S, self._read_again)
            return 0
        if data is None:
            self._end(OSError(shell.problem) if shell.problem else None)
            return 0
        data, self._rest = data[: self._room()], data[self._room() :]
        if data:
            self._heard_at = self._loop.time()
            self._delivered += len(data)
            self._deliver(data)
        return len(data)

    def _read_output(self, shell: Shell) -> bytes | None:
        """What has arrived; events before it are told. Raises BlockingIOError."""
        while isinstance(data := shell.read(), dict):
            self._tell(data)
        return data

    def _show(self, data: bytes) -> bool:
        """Show a short piece of output at once. False, and nothing is shown, where it has to wait for its turn."""
        waits = (
            self._output
            or self._rest
            or len(data) > self._room()
            or self.ended
            or not self.open
            or self._share.is_anybody_printing()
        )
        if waits or not self._direct(data):
            return False
        self._heard_at = self._loop.time()
        self._delivered += len(data)
        return True

    def _read_again(self) -> None:
        self._retry_timer = None
        if not self._closed:  # otherwise a connection that stays busy would be asked for ever
            self._read()

    def _deliver(self, data: bytes) -> None:
        if self._output or not self._direct(data):
            self._output.append(data)
            self._changed()

    def _tell(self, event: Event) -> None:
        self._heard_at = self._loop.time()
        if "beat" not in event:
            self._output.append(event)
            self._changed()

    def _end(self, problem: Exception | None) -> None:
        self.ended = True
        self._share.leave(self._read_some)
        self.problem = self.problem or problem
        self._changed()


def _nothing() -> None:
    """In place of the socket of a terminal that was left."""


def _takes_nothing(data: bytes) -> bool:
    return False
