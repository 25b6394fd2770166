"""Which dispatcher speaks to which host: a lease on the host's row, with a token that grows at each change of holder.

The lease makes two dispatchers on one host unlikely, and the token makes them harmless: each write for a host names the
token, and so does the greeting that the host itself checks. Losing a lease early costs a reconnect, never a run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Greatest

from agents.infra import clock
from agents.infra.failpoints import failpoint
from agents.models import Dispatcher, Host

# A holder stops sending this part of the lease before others may take over: clocks differ, and a write needs time.
MARGIN = 0.2
KEEP_DISPATCHERS = timedelta(hours=1)


class Lease:
    """A dispatcher's own view of one lease, by the time since this machine was started: sleep counts, and nobody can
    set it.
    """

    def __init__(self, token: int, lease_s: float, asked: float) -> None:
        self.token = token
        self.extend(lease_s, asked)

    def extend(self, lease_s: float, asked: float) -> None:
        """The lease was granted for lease_s; `asked` is `clock.elapsed()` just before the request."""
        self._until = asked + lease_s * (1 - MARGIN)

    def good(self) -> bool:
        """Whether this dispatcher may still send to the host."""
        return clock.elapsed() < self._until


@dataclass(frozen=True, slots=True)
class LeaseChanges:
    """The hosts that this dispatcher holds now (id → token), and those of them that others should have.

    The dispatcher stops the links of those in `give_up` and then calls `release`.
    """

    held: Mapping[int, int]
    give_up: frozenset[int]


def announce(name: str, now: datetime, stuck_s: float = 0.0, threads_gone: int = 0) -> None:
    """Record that this dispatcher is alive, and whether its worker threads are."""
    known = {"seen_at": now, "stuck_s": stuck_s, "threads_gone": threads_gone}
    Dispatcher.objects.update_or_create(name=name, defaults=known)
    Dispatcher.objects.filter(seen_at__lt=now - KEEP_DISPATCHERS).delete()


def withdraw(name: str, now: datetime) -> None:
    """Record that this dispatcher ends: others may take over its hosts at once."""
    with transaction.atomic():
        Host.every.filter(lease_owner=name).update(lease_until=now, lease_owner="")
        Dispatcher.objects.filter(name=name).delete()


def renew_and_take(
    name: str, held: Mapping[int, int], now: datetime, lease_s: float, fresh: bool
) -> LeaseChanges:
    """Renew the leases that are held and take free ones, up to a fair share over the live dispatchers.

    `fresh` marks the first call of a process: leases in its own name then belong to its former life, and are taken
    anew.
    """
    until = now + timedelta(seconds=lease_s)
    Host.every.filter(lease_owner=name, pk__in=held).update(lease_until=until)
    # Read after the renewal: a lease that another dispatcher took meanwhile shows another owner or another token.
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
    """Give these leases back."""
    Host.every.filter(lease_owner=name, pk__in=host_ids).update(lease_until=now, lease_owner="")


def record_answers(name: str, host_ids: Collection[int], now: datetime) -> dict[int, int]:
    """Record that these hosts answer. Returns the marks that may be sent to them now (recovery.py), by host id."""
    rows = Host.every.filter(lease_owner=name, pk__in=host_ids)
    if not rows.update(seen_at=now, mark=Greatest(F("mark") + 1, int(now.timestamp()))):
        return {}
    return dict(rows.order_by().values_list("pk", "mark"))


def _free(host: Host, name: str, now: datetime, fresh: bool) -> bool:
    if not host.lease_owner or host.lease_until is None or host.lease_until < now:
        return True
    return fresh and host.lease_owner == name


def _take(host: Host, name: str, now: datetime, until: datetime) -> int | None:
    # Not merely one more: a host that was removed and added again must not get a token that it has seen before.
    token = max(host.lease_token + 1, int(now.timestamp()))
    unchanged = Q(pk=host.pk, lease_token=host.lease_token, lease_owner=host.lease_owner)
    won = Host.every.filter(unchanged, lease_until=host.lease_until).update(
        lease_owner=name, lease_token=token, lease_until=until
    )
    return token if won else None
