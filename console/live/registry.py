"""Receives hints from the channel layer, once for each topic and process, and wakes this process's sockets.

A process joins a topic once, however many sockets watch the topic: with one group member for each viewer, 200 viewers
and 25 messages a second saturate a core, and the layer then drops messages silently. A hint has no content, so several
hints before a watcher looks count as one. While the layer is unavailable nothing is lost: every watcher looks once a
second anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Any
from weakref import WeakKeyDictionary

from channels.layers import get_channel_layer

log = logging.getLogger(__name__)

# How long a watcher waits for a hint before it looks without one.
POLL_EVERY_S = 1.0
# The first and the longest pause before the next try, when the layer does not answer. The pause doubles each time.
RETRY_S = (0.5, 10.0)
# redis-py's own receive loop logs once a second that it cannot connect. Once a minute is enough.
QUIET_S = 60.0


class OncePerMinute(logging.Filter):
    """Lets one log record pass in QUIET_S, as one line: the traceback of the library would not help."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + QUIET_S
        if record.exc_info:
            record.msg, record.args = "%s: %s", (record.getMessage(), record.exc_info[1])
            record.exc_info = None
        return True


logging.getLogger("channels_redis.pubsub").addFilter(OncePerMinute())


class TopicWatcher:
    """One watcher of some topics. `wait` returns when a hint has come since the last `wait`, or after a timeout."""

    def __init__(self) -> None:
        self._hinted = asyncio.Event()

    def wake(self) -> None:
        self._hinted.set()

    async def hinted(self) -> None:
        """Wait for a hint without a timeout. For a watcher that is woken by a task that itself looks once a second."""
        await self._hinted.wait()
        self._hinted.clear()

    async def wait(self, seconds: float = POLL_EVERY_S) -> bool:
        """Wait for a hint or the timeout. Returns whether a hint came."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hinted.wait()
        hinted = self._hinted.is_set()
        self._hinted.clear()
        return hinted


class Registry:
    """The watchers of one event loop by topic, and the one task that listens to the channel layer for all of them."""

    def __init__(self) -> None:
        self._watches: dict[str, set[TopicWatcher]] = {}
        self._joined: set[str] = set()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._channel = ""

    @contextlib.asynccontextmanager
    async def watch(self, *topics: str) -> AsyncIterator[TopicWatcher]:
        watch = TopicWatcher()
        for topic in topics:
            self._watches.setdefault(topic, set()).add(watch)
        self._ensure()
        try:
            yield watch
        finally:
            for topic in topics:
                watches = self._watches[topic]
                watches.discard(watch)
                if not watches:
                    del self._watches[topic]
            self._changed.set()

    def hint(self, topic: str) -> None:
        for watch in self._watches.get(topic, ()):
            watch.wake()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def _ensure(self) -> None:
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._listen_for_ever(), name="registry")

    async def _listen_for_ever(self) -> None:
        """Listen for ever. Log an error once per outage and try again after growing pauses."""
        layer = get_channel_layer()
        if layer is None:
            return
        pause = 0.0
        while True:
            began = time.monotonic()
            try:
                await self._listen(layer)
            except Exception as problem:
                if not pause:
                    log.warning("The channel layer does not answer (%s): pages look once a second.", problem)
            lasted = time.monotonic() - began
            pause = RETRY_S[0] if lasted > RETRY_S[1] or not pause else min(2 * pause, RETRY_S[1])
            await asyncio.sleep(pause)

    async def _listen(self, layer: Any) -> None:
        self._joined.clear()
        self._channel = await layer.new_channel()
        receiver = asyncio.create_task(self._receive(layer, self._channel))
        try:
            while True:
                self._changed.clear()
                await self._join(layer)
                changed = asyncio.create_task(self._changed.wait())
                try:
                    await asyncio.wait({receiver, changed}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                if receiver.done():
                    receiver.result()
        finally:
            receiver.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await receiver

    async def _receive(self, layer: Any, channel: str) -> None:
        while True:
            message = await layer.receive(channel)
            self.hint(str(message.get("topic", "")))

    async def _join(self, layer: Any) -> None:
        """Join the topics that are watched here and leave the others. Wake the watchers of a topic that is joined,
        because they may have missed a hint.
        """
        wanted = set(self._watches)
        for topic in wanted - self._joined:
            await layer.group_add(group(topic), self._channel)
            self._joined.add(topic)
            self.hint(topic)
        for topic in self._joined - wanted:
            self._joined.discard(topic)
            await layer.group_discard(group(topic), self._channel)


def group(topic: str) -> str:
    """The name of a topic's group in the channel layer, where names may not contain a colon."""
    return topic.replace(":", ".")


_registries: WeakKeyDictionary[asyncio.AbstractEventLoop, Registry] = WeakKeyDictionary()


def of_this_loop() -> Registry:
    """The registry of the running event loop. A web process has one loop; a test suite has many."""
    loop = asyncio.get_running_loop()
    if loop not in _registries:
        _registries[loop] = Registry()
    return _registries[loop]
