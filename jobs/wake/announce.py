"""Hints to open pages: "this topic has changed". A hint has no content and may be lost; a page also looks by itself.

One thread of each process sends them, on an event loop of its own: a caller never waits for Redis, and a topic that
changes faster than hints can be sent gets one hint. Topics: `job:<id>`, `log:<run>`, `jobs:<project>`, `hosts`,
`host:<id>`, `shells:<run>`, `tuning:<id>`. The name of a channel group is its topic with a dot for the colon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable

from channels.layers import get_channel_layer
from django.db import transaction

from agents.infra.outbox import Outbox

log = logging.getLogger(__name__)

# A hint about a topic that changes rarely is sent at once, however busy others are; about a busy one, at most once in
# this time.
PAUSE_S = 0.005
GIVE_UP_S = 5.0


def group(topic: str) -> str:
    return topic.replace(":", ".")


def hint(topic: str) -> None:
    hints([topic])


def hints(topics: Iterable[str]) -> None:
    """Send hints about these topics after the commit; at once if there is no transaction."""
    wanted = frozenset(topics)
    if wanted:
        transaction.on_commit(lambda: send_now(wanted), robust=True)


def send_now(topics: Iterable[str]) -> None:
    """Send hints now. Never waits, never raises."""
    for topic in topics:
        _outbox.post(topic)


class HintSender:
    """Sends hints through the channel layer, on an event loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def tell(self, topics: Collection[str]) -> None:
        self._loop.run_until_complete(self._send_all(topics))

    async def _send_all(self, topics: Collection[str]) -> None:
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await asyncio.gather(*(self._send(topic) for topic in topics))
        except Exception as problem:  # the layer's driver may raise anything, and the next hint must be sent
            log.debug("Hints to pages were lost: %s", problem)

    async def _send(self, topic: str) -> None:
        layer = get_channel_layer()
        if layer is not None:
            await layer.group_send(group(topic), {"type": "hint", "topic": topic})


_outbox: Outbox[str, str] = Outbox("announce", lambda: HintSender().tell, PAUSE_S)
