"""Which dispatcher speaks to which host: a lease on the host's row, with a token that grows at each change of hands.

A lease makes two dispatchers on one host unlikely and its token makes them harmless: whoever writes for a host names
the token, and so does the greeting on the host itself. Losing a lease early costs a reconnect, never a run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Greatest

from agents.infra.failpoints import failpoint
from agents.models import Dispatcher, Host

# A holder stops speaking this much before others may take over: clocks differ, and a write under way needs its time.
MARGIN = 0.2
KEEP_DISPATCHERS = timedelta(hours=1)


class Lease:
    """A dispatcher's own view of one lease. Two clocks, because a stopped process and a sleeping machine differ."""

    def __init__(self, token: int, lease_s: float, asked: float, now: datetime) -> None:
        self.token = token
        self.extend(lease_s, asked, now)

    def extend(self, lease_s: float, asked: float, now: datetime) -> None:
        """It was granted for lease_s from `now` on; `asked` is the monotonic time before the question was put."""
        own_s = lease_s * (1 - MARGIN)
        self._until = asked + own_s
        self._wall_until = now.timestamp() + own_s

    def good(self) -> bool:
        return time.monotonic() < self._until and time.time() < self._wall_until


@dataclass(frozen=True, slots=True)
class LeaseChanges:
    """The hosts that are ours now (id → token), and those of them that others should have: stop, then `release`."""

    held: Mapping[int, int]
    give_up: frozenset[int]


def announce(name: str, now: datetime) -> None:
    """This dispatcher is alive."""
    Dispatcher.objects.update_or_create(name=name, defaults={"seen_at": now})
    Dispatcher.objects.filter(seen_at__lt=now - KEEP_DISPATCHERS).delete()


def leave(name: str, now: datetime) -> None:
    """This dispatcher goes: others may take over at once."""
    with transaction.atomic():
        Host.every.filter(lease_owner=name).update(lease_until=now, lease_owner="")
        Dispatcher.objects.filter(name=name).delete()


def renew_and_take(
    name: str, held: Mapping[int, int], now: datetime, lease_s: float, fresh: bool
) -> LeaseChanges:
    """Renew what is held, take what is free, up to a fair share over the live dispatchers.

    `fresh` is the first call of a process: leases in its own name are then those of its former life, and taken anew.
    """
    until = now + timedelta(seconds=lease_s)
    Host.every.filter(lease_owner=name, pk__in=held).update(lease_until=until)
    # Read after the renewal: a lease that somebody else took meanwhile shows another owner, or another token.
    hosts = list(Host.objects.exclude(pinned_key="").order_by("pk"))
    mine = {h.pk: h.lease_token for h in hosts if h.lease_owner == name and held.get(h.pk) == h.lease_token}
    others = Dispatcher.objects.filter(seen_at__gte=now - timedelta(seconds=lease_s)).exclude(name=name)
    share = math.ceil(len(hosts) / (others.count() + 1))
    give_up = frozenset(sorted(mine)[share:])
    for host in hosts:
        if len(mine) >= share:
            break
        if host.pk not in mine and _free(host, name, now, fresh):
            token = _take(host, name, now, until)
            if token is not None:
                mine[host.pk] = token
    failpoint("lease.taken")
    return LeaseChanges(mine, give_up)


def release(name: str, host_ids: Collection[int], now: datetime) -> None:
    Host.every.filter(lease_owner=name, pk__in=host_ids).update(lease_until=now, lease_owner="")


def record_answers(name: str, host_ids: Collection[int], now: datetime) -> dict[int, int]:
    """These hosts answer. The marks that may be told to them now (recovery.py), by their ids."""
    rows = Host.every.filter(lease_owner=name, pk__in=host_ids)
    if not rows.update(seen_at=now, mark=Greatest(F("mark") + 1, int(now.timestamp()))):
        return {}
    return dict(rows.order_by().values_list("pk", "mark"))


def _free(host: Host, name: str, now: datetime, fresh: bool) -> bool:
    if not host.lease_owner or host.lease_until is None or host.lease_until < now:
        return True
    return fresh and host.lease_owner == name


def _take(host: Host, name: str, now: datetime, until: datetime) -> int | None:
    # Not merely one more: a host that was removed and added again must not meet tokens that it has heard before.
    token = max(host.lease_token + 1, int(now.timestamp()))
    unchanged = Q(pk=host.pk, lease_token=host.lease_token, lease_owner=host.lease_owner)
    won = Host.every.filter(unchanged, lease_until=host.lease_until).update(
        lease_owner=name, lease_token=token, lease_until=until
    )
    return token if won else None
