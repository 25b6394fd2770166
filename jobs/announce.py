"""Doorbells for open pages: "this topic has changed". Never content, may be lost; a page looks by itself as well.

One thread per process rings, on an event loop of its own: whoever announces never waits for Redis, and a topic that
changes faster than it can be rung is rung once. Topics: `job:<id>`, `log:<run>`, `jobs:<project>`, `hosts`,
`host:<id>`, `shells:<run>`. A group's name is its topic with a dot for the colon.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterable

from channels.layers import get_channel_layer
from django.db import transaction

log = logging.getLogger(__name__)

# A quiet topic is rung at once; a busy one at most this often.
PAUSE_S = 0.005
GIVE_UP_S = 5.0


def group(topic: str) -> str:
    return topic.replace(":", ".")


def hint(topic: str) -> None:
    hints([topic])


def hints(topics: Iterable[str]) -> None:
    """After the commit, if there is a transaction."""
    wanted = frozenset(topics)
    if wanted:
        transaction.on_commit(lambda: ring(wanted), robust=True)


def ring(topics: Iterable[str]) -> None:
    """Now. Never waits, never raises."""
    _ringer().ring(topics)


class Ringer:
    """Rings topics through the channel layer, from a daemon thread that no exit of the process waits for."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._waiting: set[str] = set()
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        threading.Thread(target=self._work, name="announce", daemon=True).start()

    def ring(self, topics: Iterable[str]) -> None:
        with self._lock:
            asleep = not self._waiting
            self._waiting.update(topics)
        if asleep and self._waiting:
            self._loop.call_soon_threadsafe(self._changed.set)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._ring_for_ever())

    async def _ring_for_ever(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            with self._lock:
                topics, self._waiting = self._waiting, set()
            try:
                async with asyncio.timeout(GIVE_UP_S):
                    await asyncio.gather(*(self._send(topic) for topic in topics))
            except Exception as problem:  # the layer's driver may raise anything, and the next bell must ring
                log.debug("Doorbells were lost: %s", problem)
            await asyncio.sleep(PAUSE_S)

    async def _send(self, topic: str) -> None:
        layer = get_channel_layer()
        if layer is not None:
            await layer.group_send(group(topic), {"type": "hint", "topic": topic})


_current: Ringer | None = None
_making = threading.Lock()


def _ringer() -> Ringer:
    """This process's own: a forked child has no threads of its parent."""
    global _current
    with _making:
        if _current is None or _current.pid != os.getpid():
            _current = Ringer()
        return _current
