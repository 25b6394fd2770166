"""How long many people who open a live page at the same moment wait until all of its live parts have come. Run by
`make scale`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from urllib.parse import quote

from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from console.asgi import application
from console.auth import tokens
from console.live import registry
from console.parts.registry import PAGES
from console.runtime import database_threads
from tests.bench.figures import percentile
from tests.harness import addresses as harness_addresses
from tests.scale import addresses
from tests.scale.people import ADMIN

VIEWERS = 50
MAX_MS = 200.0
PATIENCE_S = 60
HEAD = f"{'live parts of a page':58} {VIEWERS} viewers {'p50 ms':>9} {'last ms':>9}"


class NotForThem(Exception):
    """The page is not open to this person."""


def show() -> int:
    """Print a line for each live page and crowd. Returns how many of them miss the aim."""
    missed = 0
    print(HEAD, flush=True)
    for told, people in (("the same rights", [ADMIN] * VIEWERS), ("20 teams", people_of_all_teams())):
        bearers = bearers_of(people)
        for path, parts in pages():
            try:
                times = asyncio.run(opened_together(path, parts, bearers))
            except NotForThem:
                continue
            last = max(times)
            missed += last > MAX_MS
            over = "  over the aim" if last > MAX_MS else ""
            print(f"{path:58} {told:18} {percentile(times, 0.5):6.0f} {last:9.0f}{over}", flush=True)
    return missed


def pages() -> list[tuple[str, int]]:
    """The path of each live page, and how many live parts it has."""
    known = harness_addresses.pages(addresses.examples(addresses.Seeded.read()))
    return [(known[name], len({part.name for part in parts}) + 1) for name, parts in PAGES.items()]


def people_of_all_teams() -> list[str]:
    return [f"user-{number}" for number in range(1, VIEWERS + 1)]


def bearers_of(names: Sequence[str]) -> list[str]:
    """A token for each viewer."""
    people = {user.username: user for user in User.objects.filter(username__in=names)}
    with transaction.atomic():
        own = {name: tokens.create(people[name], "scale", timezone.now())[1] for name in set(names)}
    return [own[name] for name in names]


async def opened_together(path: str, parts: int, bearers: Sequence[str]) -> list[float]:
    """The times of all viewers, in ms. One that came before has loaded templates and statements."""
    try:
        await first_fragments(path, parts, bearers[0])
        return await asyncio.gather(*(first_fragments(path, parts, bearer) for bearer in bearers))
    finally:
        await registry.of_this_loop().close()
        database_threads.close()


async def first_fragments(path: str, parts: int, bearer: str) -> float:
    scope = {
        "type": "websocket",
        "path": "/ws/live",
        "query_string": f"at={quote(path)}".encode(),
        "headers": [(b"host", b"scale"), (b"authorization", f"Bearer {bearer}".encode())],
        "client": ["192.0.2.7", 5000],
    }
    socket = ApplicationCommunicator(application, scope)
    begun = time.perf_counter()
    await socket.send_input({"type": "websocket.connect"})
    accepted = await socket.receive_output(PATIENCE_S)
    if accepted["type"] != "websocket.accept":
        raise NotForThem
    while parts:
        message = await socket.receive_output(PATIENCE_S)
        assert message["type"] == "websocket.send", message
        # What begins otherwise is a beat.
        parts -= message["text"].startswith("<")
    took = (time.perf_counter() - begun) * 1000
    await socket.send_input({"type": "websocket.disconnect", "code": 1001})
    await socket.wait(PATIENCE_S)
    return took
