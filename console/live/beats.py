"""Sends a beat to every socket of this process, so that a browser that hears nothing knows that its path is cut.

A connection whose path is cut looks open to the browser for many minutes. Only silence shows it, and silence shows
something only if the server never keeps silent for long. All sockets are sent the same frame, which has Trainyard's
time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from django.utils import timezone

from console.runtime import websocket_protocol
from console.runtime.websocket_protocol import WriteFrame

# The browser calls the page stale when it has heard nothing for 8 s (static/wire.js): two beats may come late.
BEAT_S = 3.0
# So many sockets are written to before the event loop does something else.
AT_ONCE = 50


def beat_text() -> str:
    return json.dumps({"beat": round(timezone.now().timestamp(), 3)}, separators=(",", ":"))


class Beats:
    """The sockets of one event loop that are sent beats, and the task that sends them."""

    def __init__(self) -> None:
        self._writers: dict[object, WriteFrame] = {}
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def sent_by(self, write: WriteFrame) -> Iterator[None]:
        """Send beats by this function as long as the block lasts, the first one now: it tells the browser to listen.

        A socket that cannot be written to now is left out: bytes wait for it, and they are as good as a beat.
        """
        key = object()
        self._writers[key] = write
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="beats")
        write(websocket_protocol.text_frame(beat_text()))
        try:
            yield
        finally:
            del self._writers[key]
            if not self._writers:
                self._task.cancel()
                self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            frame = websocket_protocol.text_frame(beat_text())
            for number, (key, write) in enumerate(list(self._writers.items()), 1):
                if key in self._writers:
                    write(frame)
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)


_beats: WeakKeyDictionary[asyncio.AbstractEventLoop, Beats] = WeakKeyDictionary()


def of_this_loop() -> Beats:
    return _beats.setdefault(asyncio.get_running_loop(), Beats())
