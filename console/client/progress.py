"""What takes longer than a second says so on a terminal: a bar where the size is known, else what is waited for."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from .text import cut, duration, size

PATIENCE_S = 1.0
EVERY_S = 0.1
CLEAR = "\r\x1b[2K"


class Progress:
    """`total`: in bytes; 0 if it is not known. Nothing is shown before a second has passed, or off a terminal."""

    def __init__(self, what: str, total: int = 0) -> None:
        self.what, self.total, self.done = what, total, 0
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self._first = 0
        self._is_shown = False
        self._is_terminal = sys.stderr.isatty()

    def at(self, done: int) -> None:
        """So much is done. What was done by an earlier attempt does not count for the rate."""
        if not self.done and not self._first:
            self._first = done
        self.done = done
        now = time.monotonic()
        if self._is_terminal and now - self._began > PATIENCE_S and now - self._drawn_at > EVERY_S:
            self._drawn_at = now
            self._is_shown = True
            sys.stderr.write(CLEAR + cut(self.line(now - self._began), 110))
            sys.stderr.flush()

    def add(self, count: int) -> None:
        self.at(self.done + count)

    def line(self, seconds: float) -> str:
        rate = (self.done - self._first) / max(seconds, 0.001)
        if not self.total:
            return f"{self.what}  {size(self.done)}  {size(rate)}/s"
        part = min(self.done / self.total, 1.0)
        bar = "█" * int(part * 20) + "░" * (20 - int(part * 20))
        left = f"  {duration((self.total - self.done) / rate)} left" if rate > 0 and part < 1 else ""
        return (
            f"{self.what}  {bar} {part:4.0%}  {size(self.done)} of {size(self.total)}  {size(rate)}/s{left}"
        )

    def clear(self) -> None:
        if self._is_shown:
            self._is_shown = False
            sys.stderr.write(CLEAR)
            sys.stderr.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None
    ) -> None:
        self.clear()


class Waiting:
    """Says on a terminal what is waited for, where that takes longer than a second. An empty text is not said."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._timer: threading.Timer | None = None
        self._is_shown = False

    def _show(self) -> None:
        self._is_shown = True
        sys.stderr.write(f"{CLEAR}{self._what}…")
        sys.stderr.flush()

    def __enter__(self) -> Waiting:
        if self._what and sys.stderr.isatty():
            self._timer = threading.Timer(PATIENCE_S, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if self._is_shown:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()
