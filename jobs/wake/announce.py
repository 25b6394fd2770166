"""Doorbells for open pages: "this topic has changed". Never content, may be lost; a page looks by itself as well.

One thread per process rings, on an event loop of its own: whoever announces never waits for Redis, and a topic that
changes faster than it can be rung is rung once. Topics: `job:<id>`, `log:<run>`, `jobs:<project>`, `hosts`,
`host:<id>`, `shells:<run>`. A group's name is its topic with a dot for the colon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable

from channels.layers import get_channel_layer
from django.db import transaction

from agents.infra.outbox import Outbox

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
        transaction.on_commit(lambda: send_now(wanted), robust=True)


def send_now(topics: Iterable[str]) -> None:
    """Now. Never waits, never raises."""
    for topic in topics:
        _bells.post(topic)


class HintSender:
    """Rings topics through the channel layer, on an event loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def tell(self, topics: Collection[str]) -> None:
        self._loop.run_until_complete(self._ring(topics))

    async def _ring(self, topics: Collection[str]) -> None:
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


_bells: Outbox[str, str] = Outbox("announce", lambda: HintSender().tell)
