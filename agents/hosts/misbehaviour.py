"""Hosts that broke a limit or the protocol: closed for a time, longer each time. An admin may end that time.

Without this, a link would be dialled again within seconds, and do the same again.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from agents.hosts import host_history
from agents.infra.texts import join, moment, said
from agents.models import Host, HostStatus

FIRST_CLOSED, LONGEST_CLOSED = timedelta(minutes=1), timedelta(hours=1)
# After so long without another time, the host counts as well-behaved.
FORGIVEN_AFTER = timedelta(days=1)


def close(host: Host, why: str, now: datetime) -> bool:
    """Close a host. The caller's transaction holds the lock of its row. True if its status changed."""
    before = host.closed_until
    times = host.closed_times + 1 if before is not None and now - before < FORGIVEN_AFTER else 1
    closed_for = min(LONGEST_CLOSED, FIRST_CLOSED * (1 << min(times - 1, 16)))
    until = now + closed_for
    Host.every.filter(pk=host.pk).update(closed_until=until, closed_times=times, due_at=until)
    time = moment(until)
    texts = [said("{why}. Its connection was closed, until {time}.", why=why, time=time)]
    if times > 1:
        texts.append(said("It was closed {number} times in a row.", number=times))
    return host_history.set_status(host.pk, HostStatus.MISBEHAVING, join(" ", texts), now)


def is_closed(host: Host, now: datetime) -> bool:
    return host.closed_until is not None and now < host.closed_until


def reopen(host_id: int, now: datetime) -> None:
    """Let the host be dialled at once: an admin wants it checked again."""
    Host.every.filter(pk=host_id, closed_until__gt=now).update(closed_until=now)
