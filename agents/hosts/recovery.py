"""Noticing that the database is older than what was done with it: it was restored from a backup.

Two things tell. A host has runs of which no row exists; or it remembers a *mark* that the database never gave out. A
mark is a number that grows by one a second while a dispatcher speaks to the host; it is committed first and told to
the host afterwards, so that in a world without restored backups no host knows a later one than the database.

From then on the product only observes: hosts report, logs are fetched, and nothing is decided, started, stopped or
forgotten until a person has seen what differs and has confirmed (jobs/host_sync/recovery_mode.py).

Both count only under the console's seal (seals.py): without it any job could stop all of us by writing a file on its
host. What is sealed proves something about the database, not about one host, so all is stopped; what is not proves
nothing, is written into its host's book, and stops nobody.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from agents.hosts import host_history, seals
from agents.hosts.seals import SealOwner
from agents.infra.sql import SelectStatement
from agents.models import Host, Recovery

log = logging.getLogger(__name__)

# Two rows of one machine, or the moment between telling and writing: no reason to stop the world.
SLACK_S = 30
FORGED_MARK = "forged_mark"
NOT_OURS = (
    "It says that it was spoken to at {there}, later than the database knows, and not under our seal: it is not "
    "believed. A program of its login wrote that, or the deployment's field key was replaced. If the database was "
    "restored from a backup, put Trainyard into recovery mode yourself (page Recovery)."
)

_unconfirmed = SelectStatement(
    lambda: Recovery.objects.filter(confirmed_at=None).order_by().values_list("pk")[:1]
)


def in_recovery_mode() -> bool:
    """Asked before anything is decided or sent."""
    return bool(_unconfirmed())


def begin(why: str, now: datetime) -> bool:
    if in_recovery_mode():
        return False
    log.error("Recovery mode: %s Nothing is started or stopped until an admin confirms.", why)
    Recovery.objects.create(since=now, why=why)
    return True


def check_mark(host: Host, mark: int, seal: str, now: datetime) -> int:
    """The host greeted, and remembers this mark. The one that the row is to go on from: that of a forger is not it.

    A host that never had a mark from this row proves nothing. A late one does not either: it is what we gave before.
    """
    if mark <= host.mark:
        return host.mark
    late = bool(host.mark) and mark > host.mark + SLACK_S
    if not seals.is_seal_of_mark(SealOwner.of(host), mark, seal):
        if late:
            host_history.record_once_a_day(
                host.pk, FORGED_MARK, NOT_OURS.format(there=_told(mark)), "trainyard", now
            )
        return host.mark
    if late:
        there, here = _told(mark), _told(host.mark)
        begin(f"{host.name} was spoken to at {there}, of which the database knows nothing after {here}.", now)
    return mark


def _told(mark: int) -> str:
    try:
        return f"{datetime.fromtimestamp(mark, UTC):%Y-%m-%d %H:%M:%S UTC}"
    except (ValueError, OverflowError, OSError):
        return "a time that no calendar has"
