"""The hosts of one dispatcher: their leases, a thread for each host, and a heartbeat that makes hints unnecessary."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import paramiko
from django.db import connection
from django.utils import timezone

from agents.infra import clock
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.links import leases
from agents.links.control_plane import ControlPlane
from agents.links.host_thread import FleetSettings, HostThread
from agents.links.leases import Lease
from agents.links.work_queue import WorkQueue
from agents.models import Host, HostStatus
from agents.ssh.targets import Target

__all__ = ["Fleet", "FleetSettings", "link_delay", "wake_hosts", "watch_hosts"]

logger = logging.getLogger(__name__)

RENEWALS_PER_LEASE = 3  # how often a lease is renewed before it would end
MIN_BETWEEN_RENEWALS_S = 0.25
_WAY = ("name", "address", "port", "user", "pinned_key", "jump", "jump_keys")  # what Target.of reads
OLD_WORK_S = 30.0


class Fleet:
    """`start` begins; `poke(host ids)` says that something may have changed for these hosts; `stop` gives the leases
    back.

    The fleet has three kinds of thread. The lease keeper renews leases; it uses the database. The heartbeat thread
    sends pings and checks deadlines; it uses neither the database nor a connection. Each host has a thread for its
    link. The database work of the hosts is done by the worker threads of `WorkQueue`.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        name: str,
        settings: FleetSettings,
        key: Callable[[], paramiko.PKey],
    ) -> None:
        self.name = name
        self._control_plane, self._settings, self._make_key = control_plane, settings, key
        self._key: paramiko.PKey | None = None
        self._hosts: dict[int, HostThread] = {}
        self._fresh = True
        self._named: HostThread | None = None  # whose old work is in the log
        self._stopping = threading.Event()
        # The lease keeper is woken for a renewal, or to look whether poked hosts were edited.
        self._woken = threading.Event()
        self._renew_soon = False
        self._poked: deque[int] = deque()
        self._work_queue = WorkQueue(settings.worker_threads)
        self._lease_thread = threading.Thread(target=self._keep_leases, name="leases", daemon=True)
        self._heartbeat_thread = threading.Thread(target=self._heartbeat, name="heartbeat", daemon=True)

    def start(self) -> None:
        _running.append(self)
        self._lease_thread.start()
        self._heartbeat_thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        if self in _running:
            _running.remove(self)
        self._stopping.set()
        self._woken.set()
        self._lease_thread.join(timeout_s)
        self._heartbeat_thread.join(timeout_s)
        deadline = time.monotonic() + timeout_s
        for host in self._hosts.values():
            host.stop()
        for host in self._hosts.values():
            host.join(max(0.1, deadline - time.monotonic()))
        self._work_queue.stop(timeout_s)
        try:
            leases.withdraw(self.name, timezone.now())
        except Exception:
            logger.exception("the leases could not be given back; they will run out")
        finally:
            connection.close()

    def poke(self, host_ids: Iterable[int], watch: bool = False) -> set[int]:
        """Compare these hosts now. Only a hint: the heartbeat would do it anyway. Returns the hosts that are not
        ours."""
        not_ours = set()
        for host_id in host_ids:
            host = self._hosts.get(host_id)
            if host is None or not host.up:
                self._renew_soon = True
            if host is None:
                not_ours.add(host_id)
            else:
                self._poked.append(host_id)
                host.poke(watch)
        self._woken.set()
        return not_ours

    def host(self, host_id: int) -> HostThread | None:
        return self._hosts.get(host_id)

    def ready(self) -> list[int]:
        """The hosts with which orders can be exchanged now."""
        return [host_id for host_id, host in list(self._hosts.items()) if host.ready]

    def held(self) -> dict[int, int]:
        """The hosts whose lease this dispatcher holds, each with the token of its lease."""
        return {host_id: host.lease.token for host_id, host in list(self._hosts.items())}

    # The heartbeat thread.

    def _heartbeat(self) -> None:
        every = min(1.0, self._settings.tick_s)
        before = time.monotonic()
        while not self._stopping.wait(every):
            now = time.monotonic()
            suspended = now - before > every + self._settings.dead_s / 3
            before = now
            for host in list(self._hosts.values()):
                try:
                    host.tick(now, suspended)
                except Exception:
                    logger.exception("a heartbeat of %s failed", host.target.name)

    # The lease keeper.

    def _keep_leases(self) -> None:
        try:
            while not self._stopping.is_set():
                self._guarded(self._renew_leases)
                self._guarded(self._wait_to_renew)
        finally:
            connection.close()

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as problem:
            if isinstance(problem, DATABASE_UNAVAILABLE):
                logger.warning("leases could not be renewed: %s", problem)
            else:
                logger.exception("leases could not be renewed")
            connection.close()

    def _wait_to_renew(self) -> None:
        """Wait until leases are due, or a poke asks for it. Pokes are frequent: of a host that is up, only a changed
        address is a reason, because orders would go to the machine that it was."""
        due = time.monotonic() + self._settings.lease_s / RENEWALS_PER_LEASE
        while not self._stopping.wait(MIN_BETWEEN_RENEWALS_S):
            left_s = due - time.monotonic()
            if left_s <= 0 or not self._woken.wait(left_s):
                break
            self._woken.clear()
            if self._renew_soon or self._has_moved():
                break
        self._renew_soon = False

    def _has_moved(self) -> bool:
        """Whether a host that was poked is reached in another way now."""
        poked = {self._poked.popleft() for _ in range(len(self._poked))}
        links = {host_id: self._hosts[host_id] for host_id in poked & self._hosts.keys()}
        rows = Host.objects.filter(pk__in=links).only(*_WAY) if links else ()
        return any(Target.of(row) != links[row.pk].target for row in rows)

    def _renew_leases(self) -> None:
        if self._key is None:
            self._key = self._make_key()
        stuck_s = max(self._oldest_work_s(), self._control_plane.stuck_s())
        leases.announce(self.name, timezone.now(), stuck_s, self._work_queue.threads_gone())
        asked, now = clock.elapsed(), timezone.now()
        shares = leases.renew_and_take(self.name, self.held(), now, self._settings.lease_s, self._fresh)
        self._fresh = False
        self._extend(shares.held, asked)
        rows = Host.objects.filter(pk__in=shares.held)
        kept = {host.pk: host for host in rows if host.pk not in shares.give_up}
        self._drop(host_id for host_id in self.held() if host_id not in kept)
        if shares.give_up:
            leases.release(self.name, shares.give_up, now)
        for host_id, row in kept.items():
            self._keep_host(row, shares.held[host_id], asked)
        compared = [host_id for host_id, host in self._hosts.items() if host.mark_checked]
        for host_id, mark in leases.record_answers(self.name, compared, now).items():
            self._hosts[host_id].set_mark(mark)

    def _oldest_work_s(self) -> float:
        """The age of the oldest work of a host. The log names the host, once, when it is old."""
        item, seconds = self._work_queue.oldest_work()
        if seconds > OLD_WORK_S and item is not self._named and isinstance(item, HostThread):
            logger.warning("the database work of %s has taken %.0f s", item.target.name, seconds)
            self._named = item
        elif seconds <= OLD_WORK_S:
            self._named = None
        return seconds

    def _extend(self, held: Mapping[int, int], asked: float) -> None:
        """Extend granted leases first, before anything that may wait: the threads of these hosts need to know."""
        for host_id, token in held.items():
            host = self._hosts.get(host_id)
            if host is not None and host.lease.token == token:
                host.lease.extend(self._settings.lease_s, asked)

    def _drop(self, host_ids: Iterable[int]) -> None:
        gone = [self._hosts.pop(host_id) for host_id in list(host_ids)]
        for host in gone:
            host.stop()
        # After `stop` nothing is sent. The wait only makes it rare that a host is dialled while its old link closes.
        deadline = time.monotonic() + min(2.0, self._settings.lease_s / (2 * RENEWALS_PER_LEASE))
        for host in gone:
            host.join(max(0.0, deadline - time.monotonic()))

    def _keep_host(self, row: Host, token: int, asked: float) -> None:
        host = self._hosts.get(row.pk)
        target = Target.of(row)
        if host is not None and (host.target != target or host.lease.token != token or host.stopped):
            self._drop([row.pk])
            host = None
        if host is not None:
            host.closed_until = row.closed_until
            self._dial_if_recovered(host, row)
            return
        assert self._key is not None
        host = HostThread(
            row.pk,
            target,
            Lease(token, self._settings.lease_s, asked),
            control_plane=self._control_plane,
            work_queue=self._work_queue,
            key=self._key,
            console=self.name,
            settings=self._settings,
            random_unit=random.random,
        )
        host.closed_until = row.closed_until
        self._hosts[row.pk] = host
        host.start()

    def _dial_if_recovered(self, host: HostThread, row: Host) -> None:
        """Dial at once when a check reached the host after the link had given up on it."""
        since = host.waiting_since
        well = row.status in (HostStatus.UP, HostStatus.CHECKING)
        if well and since is not None and row.status_since > since:
            host.dial_now()


_running: list[Fleet] = []


def wake_hosts(host_ids: Iterable[int]) -> set[int]:
    """Poke the fleet of this process, if it has one. Returns the hosts that are not ours."""
    not_ours = set(host_ids)
    for fleet in list(_running):
        not_ours &= fleet.poke(host_ids)
    return not_ours


def watch_hosts(host_ids: Iterable[int]) -> None:
    """The same, where a host is to watch, free or remove something."""
    for fleet in list(_running):
        fleet.poke(host_ids, watch=True)


def link_delay(host_id: int) -> float | None:
    """How long a small frame to this host and back takes now, if this process has a link to it."""
    found = (host.delay() for fleet in list(_running) if (host := fleet.host(host_id)) is not None)
    return next(found, None)
