"""The terminal of the person: raw while a shell is on it, and as it was before afterwards, however that ends."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Any

from .errors import ClientError

# What a program may have switched on that would stay: the other screen, a hidden cursor, mouse, paste marks, colours.
CALM = "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[0m"


class RawTerminal:
    """In its block, keys come as they are typed. `wakes`: can be read when the size has changed."""

    def __init__(self) -> None:
        try:
            self._termios: Any = importlib.import_module("termios")
            self._tty: Any = importlib.import_module("tty")
        except ImportError:
            raise ClientError(
                "This system has no terminals as shells need them.",
                "Open the shell on the page of the job, or in WSL.",
            ) from None
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise ClientError("A shell needs a terminal.", "Run it without pipes; in ssh, with ssh -t.")
        self._before: Any = None
        self._handlers: dict[int, Any] = {}
        self.wakes, self._wake = os.pipe()

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        found = os.get_terminal_size(sys.stdout.fileno())
        return min(max(found.columns, 1), 1000), min(max(found.lines, 1), 1000)

    def __enter__(self) -> RawTerminal:
        self._before = self._termios.tcgetattr(sys.stdin.fileno())
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, _end)
        self._handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, self._resized)
        self._tty.setraw(sys.stdin.fileno())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None
    ) -> None:
        self._termios.tcsetattr(sys.stdin.fileno(), self._termios.TCSAFLUSH, self._before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self.wakes)
        os.close(self._wake)
        write(CALM.encode())

    def _resized(self, number: int, frame: FrameType | None) -> None:
        os.write(self._wake, b"\0")


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def write(data: bytes) -> None:
    """Write to the terminal past Python's buffers, all of it."""
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]
