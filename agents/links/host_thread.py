"""A thread for each host: it dials, listens, and dials again.

What needs the database is done in `do_work`, by a worker thread (work_queue.py).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import paramiko
from django.utils import timezone

from agents.hosts.seals import SealOwner
from agents.infra.failpoints import failpoint
from agents.links import host_preparations, host_status
from agents.links.backoff import Backoff, FailureKind
from agents.links.control_plane import (
    Arrival,
    ControlPlane,
    Fact,
    Frame,
)
from agents.links.host_watch import HostWatch
from agents.links.leases import Lease
from agents.links.link import Hello, Link, RunnerMissing
from agents.links.orders import (
    Prepare,
    Start,
    Unprepare,
    brings_orders,
    ends_a_run,
    is_changing,
    orders_to_send,
)
from agents.links.work_queue import WorkQueue
from agents.models import HostStatus
from agents.runner.wire import WireError
from agents.ssh import install_runner
from agents.ssh.dial import (
    AuthFailed,
    Connection,
    DialError,
    HostKeyChanged,
    HostKeyUnknown,
    HostMisbehaves,
    SshdBusy,
    Unreachable,
    dial,
)
from agents.ssh.targets import Target

logger = logging.getLogger(__name__)

QUIET_COMPARE_S = 5.0
STABLE_LINK_S = 10.0
# With more than this unsent, further orders would only wait in memory.
MAX_UNSENT_BYTES = 4 * 1024 * 1024
MAX_STARTS = 200
# After so long, what is left of a turn is done in the next one: the other hosts come first.
TURN_S = 0.5
# How many runners are started at once, over all hosts: after a restart of the dispatcher, a hundred that share a
# machine or a file server would slow each other past every deadline. A host that hangs holds the others up for at most
# the wait below.
GREETING_SLOTS = threading.BoundedSemaphore(16)
GREETING_SLOT_WAIT_S = 15.0


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """How the dispatcher keeps its links."""

    deployment: str
    lease_s: float = 15.0
    tick_s: float = 1.0
    dead_s: float = 12.0
    worker_threads: int = 4


class HostThread:
    """One host: its link, its lease, and its work item in the work queue."""

    def __init__(
        self,
        host_id: int,
        target: Target,
        lease: Lease,
        *,
        control_plane: ControlPlane,
        work_queue: WorkQueue,
        key: paramiko.PKey,
        console: str,
        settings: FleetSettings,
        random_unit: Callable[[], float],
    ) -> None:
        self.host_id, self.target, self.lease = host_id, target, lease
        self._seal_owner = SealOwner(host_id, target.user, target.pinned_key)
        self._control_plane, self._work_queue = control_plane, work_queue
        self._key, self._settings = key, settings
        self._console = console
        self._backoff = Backoff(random_unit)
        self._link: Link | None = None
        self._stopping = False
        self._wake = threading.Event()
        self._status_updates: deque[Callable[[], bool]] = deque(maxlen=100)
        self._compare_due = True
        self._mark_checked = False
        self._last_comparison_at = 0.0
        self._ticked_at = time.monotonic()
        self._changing = False
        self._watch = HostWatch(host_id)
        self._dial_failed = False  # the last dial failed too
        self._greeting = False  # holds one of GREETING_SLOTS; used in the host's own thread only
        self.closed_until: datetime | None = None  # it misbehaved and is not dialled before
        self.waiting_since: datetime | None = None  # since when the thread waits to dial again
        self._thread = threading.Thread(target=self._run, name=f"host {target.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop sending. Returns at once; `join` waits."""
        self._stopping = True
        self._wake.set()
        self.hang_up()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    @property
    def stopped(self) -> bool:
        return self._stopping

    @property
    def up(self) -> bool:
        link = self._link
        return link is not None and link.hello is not None

    @property
    def ready(self) -> bool:
        link = self._link
        return link is not None and link.ready

    @property
    def mark_checked(self) -> bool:
        """The host is up, and the mark that it remembers of this console was compared with the database."""
        return self.up and self._mark_checked

    def set_mark(self, mark: int) -> None:
        if (link := self._link) is not None:
            link.mark = mark

    def poke(self, watch: bool = False) -> None:
        """Compare what is wanted with what the host reports, soon. `watch`: and what it is to watch, free or remove."""
        if watch:
            self._watch.look_soon()
        self._compare_due = True
        self._work_queue.enqueue(self)

    def delay(self) -> float | None:
        """The round trip of a small frame on the link; None if there is no link."""
        return link.delay() if (link := self._link) is not None else None

    def dial_now(self) -> None:
        """End the back-off: a person mended something, or a check found the host well."""
        self._wake.set()

    def hang_up(self) -> None:
        """Close the link in a thread of its own: closing can wait for a host that does not read, and nobody else
        may."""
        link = self._link
        if link is not None and not link.hung_up:
            link.hung_up = True
            threading.Thread(target=self._close, args=[link], name="hang up", daemon=True).start()

    def _close(self, link: Link) -> None:
        try:
            link.close()
        except Exception:
            logger.exception("the link to %s did not close well", self.target.name)

    def tick(self, now: float, suspended: bool = False) -> None:
        """Called by the heartbeat thread about once a second: pings, deadlines, and a comparison although nobody asked.

        `suspended`: this process did not run since the last call, and must not mistake its own pause for the host's
        silence.
        """
        gap, self._ticked_at = now - self._ticked_at, now
        link = self._link
        if link is not None:
            dead_s = self._settings.dead_s
            if suspended or not self.lease.good():
                link.excuse(gap, now)
            elif link.check(now, dead_s / 3, dead_s):
                # Otherwise the thread of the host reports the reason, when the link has ended.
                if link.hello is not None and not link.misbehaviour:
                    self._report_failure(HostStatus.UNREACHABLE, f"no answer for {dead_s:g} s")
                self.hang_up()
            elif now - self._last_comparison_at >= (
                self._settings.tick_s if self._changing else QUIET_COMPARE_S
            ):
                self._compare_due = True
        if self._status_updates or self._compare_due or (link is not None and len(link.inbox)):
            self._work_queue.enqueue(self)

    def do_work(self) -> bool:
        """One bounded piece of database work, done by a worker thread. Nothing here waits for the host.

        True if there is more: the other hosts come first.
        """
        began = time.monotonic()
        for _ in range(len(self._status_updates)):
            if self._status_updates[0]():
                self._control_plane.host_changed(self.host_id)
            self._status_updates.popleft()
        link = self._link
        if link is None or not self._may_send():
            # The holder of the lease asks the host again; so do we if the lease becomes ours again.
            return False
        for message in link.host_messages():
            if self._watch.record(message, self.lease.token):
                self._control_plane.host_changed(self.host_id)
        if host_preparations.store(link, self._control_plane, self.host_id, self.lease.token):
            self._compare_due = True
        # Not before the control plane has stored the inventory: it may find that it must not give orders at all.
        if self._compare_due and link.ready and (link.inventory_stored or not len(link.inbox)):
            link.inventory_stored = True
            self._compare(link)
        if time.monotonic() - began < TURN_S and (batch := link.inbox.batch()):
            self._store_batch(link, batch)
        if self._compare_due and link.ready and link.waiting_bytes < MAX_UNSENT_BYTES:
            return True
        if (gather_s := link.inbox.gather_s()) > 0:
            self._work_queue.enqueue(self, gather_s)
            return False
        return len(link.inbox) > 0

    # The host's own thread.

    def _run(self) -> None:
        while not self._stopping:
            if not self.lease.good() or self._is_closed():
                self._wait(self._settings.tick_s)
                continue
            began = time.monotonic()
            trouble = self._attempt()
            if time.monotonic() - began > STABLE_LINK_S and trouble is FailureKind.LOST:
                self._backoff.reset()
            self.waiting_since = timezone.now()
            self._wait(self._backoff.wait_s(trouble))
            self.waiting_since = None

    def _wait(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _is_closed(self) -> bool:
        return self.closed_until is not None and timezone.now() < self.closed_until

    def _attempt(self) -> FailureKind:
        """Dial and listen until the link ends. What failed is in the host's row then."""
        try:
            self._connect()
            return FailureKind.LOST
        except (HostKeyChanged, HostKeyUnknown) as error:
            self._report_failure(HostStatus.BLOCKED, str(error))
            return FailureKind.KEY
        except AuthFailed as error:
            self._report_failure(HostStatus.AUTH_FAILED, str(error))
            return FailureKind.LOGIN
        except HostMisbehaves as error:
            self._report_misbehaviour(str(error))
            return FailureKind.MISBEHAVED
        except (Unreachable, SshdBusy) as error:
            if self._dial_failed:  # an sshd that restarts, or is full for a moment, is not reported
                self._report_failure(HostStatus.UNREACHABLE, str(error))
            self._dial_failed = True
            return FailureKind.BUSY if isinstance(error, SshdBusy) else FailureKind.UNREACHABLE
        except DialError as error:
            self._report_failure(HostStatus.UNUSABLE, str(error))
            return FailureKind.BROKEN
        except Exception as error:
            logger.exception("the link to %s failed", self.target.name)
            self._report_failure(HostStatus.UNUSABLE, f"{type(error).__name__}: {error}")
            return FailureKind.BROKEN
        finally:
            self._link = None

    def _connect(self) -> None:
        transport = dial(self.target, self._key, dead_s=self._settings.dead_s)
        try:
            failpoint("link.dialled")
            try:
                self._listen(transport)
            except RunnerMissing:
                install_runner.put_runner(transport)
                self._listen(transport)
        finally:
            transport.close()

    def _listen(self, transport: Connection) -> None:
        greeting = {
            "deployment": self._settings.deployment,
            "epoch": self.lease.token,
            "console": self._console,
        }
        self._greeting = GREETING_SLOTS.acquire(timeout=GREETING_SLOT_WAIT_S)
        try:
            link = Link(
                transport, self.target.name, greeting, self._may_send, self._on_arrivals, self._seal_owner
            )
            self._mark_checked = False
            self._link, self._compare_due, self._changing = link, True, True
            self._watch.begin()
            if self._stopping:  # `stop` was called before there was a link to close
                link.close()
            else:
                link.listen(self._greeted)
        finally:
            self._end_greeting()

    def _end_greeting(self) -> None:
        if self._greeting:
            self._greeting = False
            GREETING_SLOTS.release()

    def _may_send(self) -> bool:
        return not self._stopping and self.lease.good()

    def _on_arrivals(self, within_s: float) -> None:
        self._work_queue.enqueue(self, within_s)

    def _greeted(self, hello: Hello) -> None:
        self._end_greeting()
        self._dial_failed = False
        if hello.sha != install_runner.shipped_sha():
            raise WireError("another runner than the one that was started")
        host_id, token = self.host_id, self.lease.token

        def greeted() -> bool:
            changed = host_status.record_greeting(host_id, token, hello, timezone.now())
            self._mark_checked = True
            return changed

        self._status_updates.append(greeted)
        self._work_queue.enqueue(self)

    def _report_failure(self, status: HostStatus, error: str) -> None:
        if self._stopping:
            return
        host_id, token = self.host_id, self.lease.token
        self._status_updates.append(
            lambda: host_status.record_failure(host_id, token, status, error, timezone.now())
        )
        self._work_queue.enqueue(self)

    def _report_misbehaviour(self, why: str) -> None:
        if self._stopping:
            return
        logger.warning("%s was disconnected: %s", self.target.name, why)
        host_id, token = self.host_id, self.lease.token
        self._status_updates.append(
            lambda: host_status.record_misbehaviour(host_id, token, why, timezone.now())
        )
        self._work_queue.enqueue(self)

    # In a worker thread.

    def _compare(self, link: Link) -> None:
        if link.waiting_bytes > MAX_UNSENT_BYTES:
            return
        self._compare_due = False
        try:
            self._send_orders(link)
        except BaseException:
            self._compare_due = True
            raise

    def _send_orders(self, link: Link) -> None:
        for about, run in link.refusals():
            link.sent.refused(about, run)
        phases = link.phases()
        wanted = self._control_plane.wanted_runs(self.host_id, link.sent.started())
        self._last_comparison_at = time.monotonic()
        self._changing = is_changing(wanted, phases)
        found = orders_to_send(wanted, phases, link.sent, self._last_comparison_at, link.preparing())
        starts = [order.run for order in found if isinstance(order, Start)]
        for late in starts[MAX_STARTS:]:
            link.sent.retract(late)
            self._compare_due = True
        starts = starts[:MAX_STARTS]
        documents = self._start_orders({run: wanted[run].order for run in starts})
        failpoint("orders.read")
        unsaid = {order.run for order in found if isinstance(order, Start)} - documents.keys()
        host_preparations.send(link, self._control_plane, self.host_id, self.lease.token, found)
        for order in found:
            if isinstance(order, Prepare | Unprepare):
                continue
            if order.run in unsaid:
                link.sent.retract(order.run)
            elif isinstance(order, Start):
                self._start(link, order, documents[order.run])
            else:
                link.send_order(order)
        self._watch.send(link, self._last_comparison_at)

    def _start_orders(self, known: Mapping[str, Mapping[str, Any] | None]) -> Mapping[str, Mapping[str, Any]]:
        """The orders of these runs: those that came with the wanted runs, and the others, for which this asks."""
        orders = {run: order for run, order in known.items() if order is not None}
        others = [run for run in known if run not in orders]
        return {**orders, **self._control_plane.start_orders(others)} if others else orders

    def _start(self, link: Link, order: Start, document: Mapping[str, Any]) -> None:
        try:
            link.send_order(order, document)
        except (WireError, ValueError) as error:
            logger.error("the order of %s cannot be sent: %s", order.run, error)

    def _store_batch(self, link: Link, batch: list[Arrival]) -> None:
        if not self.lease.good():
            return
        failpoint("take.before")
        accepted = self._control_plane.store_reports(self.host_id, self.lease.token, batch)
        failpoint("take.after")
        if not accepted.current:
            logger.warning("another dispatcher holds %s now", self.target.name)
            self.stop()
            return
        link.inbox.done(batch)
        # Bytes that could not be stored now (a full disk) come again only if the log is pulled again.
        link.sent.pulled -= {
            each.run for each in batch if isinstance(each.what, Frame)
        } - accepted.acks.keys()
        for run, end in accepted.acks.items():
            link.send({"t": "ack", "run": run, "to": end})
        for run, start in accepted.pulls.items():
            link.pull(run, start)
        if any(brings_orders(arrival) for arrival in batch):
            self._compare_due = True
        # Such a run is to be forgotten at most, and mostly not yet: the next tick compares, for all that end meanwhile.
        self._changing |= any(ends_a_run(arrival) for arrival in batch)
        if any(isinstance(each.what, Fact) and each.what.document.get("busy") for each in batch):
            self._compare_due = True
            self._watch.look_soon()
