"""Noticing that the database is older than what was done with it: it was restored from a backup.

Two things tell. A host has runs of which no row exists; or it remembers a *mark* that the database never gave out. A
mark is a number that grows by one a second while a dispatcher speaks to the host; it is committed first and told to
the host afterwards, so that in a world without restored backups no host knows a later one than the database.

From then on the product only observes: hosts report, logs are fetched, and nothing is decided, started, stopped or
forgotten until a person has seen what differs and has confirmed (jobs/recovering.py).
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from agents.models import Host, Recovery
from agents.statements import Read

log = logging.getLogger(__name__)

# Two rows of one machine, or the moment between telling and writing: no reason to stop the world.
SLACK_S = 30

_unconfirmed = Read(lambda: Recovery.objects.filter(confirmed_at=None).order_by().values_list("pk")[:1])


def observing() -> bool:
    """Asked before anything is decided or sent."""
    return bool(_unconfirmed())


def begin(why: str, now: datetime) -> None:
    if not observing():
        log.error("Recovery mode: %s Nothing is started or stopped until an admin confirms.", why)
        Recovery.objects.create(since=now, why=why)


def compare(host: Host, mark: int, now: datetime) -> None:
    """The host greeted, and remembers this mark. One that never had a mark from this row proves nothing."""
    if host.mark and mark > host.mark + SLACK_S:
        there, here = (
            f"{datetime.fromtimestamp(each, UTC):%Y-%m-%d %H:%M:%S UTC}" for each in (mark, host.mark)
        )
        begin(f"{host.name} was spoken to at {there}, of which the database knows nothing after {here}.", now)
