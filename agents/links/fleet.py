"""The dispatcher's hosts: who is ours, a thread for each, and the clocks that make hints unnecessary."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import paramiko
from django.db import connection
from django.utils import timezone

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.links import leases
from agents.links.control_plane import ControlPlane
from agents.links.host_thread import FleetSettings, HostThread
from agents.links.leases import Lease
from agents.links.work_queue import WorkQueue
from agents.models import Host, HostStatus
from agents.ssh.targets import Target

__all__ = ["Fleet", "FleetSettings", "wake_hosts"]

logger = logging.getLogger(__name__)

RENEWALS = 3  # of a lease, before it would end
MIN_BETWEEN_SHARES_S = 0.25


class Fleet:
    """`start`, then `poke(host ids)` whenever something may have changed for them; `stop` gives the hosts back.

    Three kinds of thread: the steward renews leases (database), the pulse pings and looks at deadlines (never the
    database, never a host), and each host's own. The database work of the hosts is done by the clerks of `Turns`.
    """

    def __init__(
        self, desk: ControlPlane, name: str, settings: FleetSettings, key: Callable[[], paramiko.PKey]
    ) -> None:
        self.name = name
        self._desk, self._settings, self._make_key = desk, settings, key
        self._key: paramiko.PKey | None = None
        self._hosts: dict[int, HostThread] = {}
        self._fresh = True
        self._stopping = threading.Event()
        self._share_soon = threading.Event()
        self._turns = WorkQueue(settings.clerks)
        self._steward = threading.Thread(target=self._keep_leases, name="steward", daemon=True)
        self._pulse = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def start(self) -> None:
        _running.append(self)
        self._steward.start()
        self._pulse.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        if self in _running:
            _running.remove(self)
        self._stopping.set()
        self._share_soon.set()
        self._steward.join(timeout_s)
        self._pulse.join(timeout_s)
        deadline = time.monotonic() + timeout_s
        for host in self._hosts.values():
            host.stop()
        for host in self._hosts.values():
            host.join(max(0.1, deadline - time.monotonic()))
        self._turns.stop(timeout_s)
        try:
            leases.leave(self.name, timezone.now())
        except Exception:
            logger.exception("the leases could not be given back; they will run out")
        finally:
            connection.close()

    def poke(self, host_ids: Iterable[int]) -> set[int]:
        """Look at these hosts now. Only a hint: the clocks would have looked anyway. Those not ours are returned."""
        strangers = set()
        for host_id in host_ids:
            host = self._hosts.get(host_id)
            if host is None or not host.up:
                self._share_soon.set()
            if host is None:
                strangers.add(host_id)
            else:
                host.poke()
        return strangers

    def ready(self) -> list[int]:
        """The hosts with which orders can be exchanged now."""
        return [host_id for host_id, host in list(self._hosts.items()) if host.ready]

    def held(self) -> dict[int, int]:
        return {host_id: host.lease.token for host_id, host in list(self._hosts.items())}

    # The pulse.

    def _beat(self) -> None:
        every = min(1.0, self._settings.tick_s)
        before = time.monotonic()
        while not self._stopping.wait(every):
            now = time.monotonic()
            asleep = now - before > every + self._settings.dead_s / 3
            before = now
            for host in list(self._hosts.values()):
                try:
                    host.tick(now, asleep)
                except Exception:
                    logger.exception("a tick of %s failed", host.target.name)

    # The steward.

    def _keep_leases(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._share()
                except Exception as problem:
                    if isinstance(problem, DATABASE_UNAVAILABLE):
                        logger.warning("leases could not be renewed: %s", problem)
                    else:
                        logger.exception("leases could not be renewed")
                    connection.close()
                self._stopping.wait(MIN_BETWEEN_SHARES_S)
                self._share_soon.wait(self._settings.lease_s / RENEWALS)
                self._share_soon.clear()
        finally:
            connection.close()

    def _share(self) -> None:
        if self._key is None:
            self._key = self._make_key()
        leases.announce(self.name, timezone.now())
        asked, now = time.monotonic(), timezone.now()
        shares = leases.renew_and_take(self.name, self.held(), now, self._settings.lease_s, self._fresh)
        self._fresh = False
        self._extend(shares.held, asked, now)
        rows = Host.objects.filter(pk__in=shares.held)
        kept = {host.pk: host for host in rows if host.pk not in shares.give_up}
        self._drop(host_id for host_id in self.held() if host_id not in kept)
        if shares.give_up:
            leases.release(self.name, shares.give_up, now)
        for host_id, row in kept.items():
            self._keep(row, shares.held[host_id], asked, now)
        compared = [host_id for host_id, host in self._hosts.items() if host.compared]
        for host_id, mark in leases.record_answers(self.name, compared, now).items():
            self._hosts[host_id].tell_mark(mark)

    def _extend(self, held: Mapping[int, int], asked: float, now: datetime) -> None:
        """Before anything that may wait: these leases are granted, and their hosts' threads are to know it."""
        for host_id, token in held.items():
            host = self._hosts.get(host_id)
            if host is not None and host.lease.token == token:
                host.lease.extend(self._settings.lease_s, asked, now)

    def _drop(self, host_ids: Iterable[int]) -> None:
        gone = [self._hosts.pop(host_id) for host_id in list(host_ids)]
        for host in gone:
            host.stop()
        # From `stop` on not a word is sent; the wait is only so that a host is rarely dialled while it hangs up.
        deadline = time.monotonic() + min(2.0, self._settings.lease_s / (2 * RENEWALS))
        for host in gone:
            host.join(max(0.0, deadline - time.monotonic()))

    def _keep(self, row: Host, token: int, asked: float, now: datetime) -> None:
        host = self._hosts.get(row.pk)
        target = Target.of(row)
        if host is not None and (host.target != target or host.lease.token != token or host.stopped):
            self._drop([row.pk])
            host = None
        if host is not None:
            self._hasten_if_mended(host, row)
            return
        assert self._key is not None
        host = HostThread(
            row.pk,
            target,
            Lease(token, self._settings.lease_s, asked, now),
            desk=self._desk,
            turns=self._turns,
            key=self._key,
            console=self.name,
            settings=self._settings,
            dice=random.random,
        )
        self._hosts[row.pk] = host
        host.start()

    def _hasten_if_mended(self, host: HostThread, row: Host) -> None:
        """A check that reached the host after we gave up on it ends the wait."""
        since = host.waiting_since
        well = row.status in (HostStatus.UP, HostStatus.CHECKING)
        if well and since is not None and row.status_since.timestamp() > since:
            host.hasten()


_running: list[Fleet] = []


def wake_hosts(host_ids: Iterable[int]) -> set[int]:
    """Reach the fleet of this process, if it keeps one. The hosts that are not ours are returned."""
    strangers = set(host_ids)
    for fleet in list(_running):
        strangers &= fleet.poke(host_ids)
    return strangers
