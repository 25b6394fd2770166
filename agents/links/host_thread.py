"""A thread per host: dials, listens, dials again. What needs the database is done in the host's turns (turns.py)."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import paramiko
from django.utils import timezone

from agents.hosts import gpu_quarantine
from agents.hosts.seals import SealOwner
from agents.infra.failpoints import failpoint
from agents.links import host_status
from agents.links.backoff import Backoff, Trouble
from agents.links.control_plane import Arrival, ControlPlane, Fact, Frame, LogEnd
from agents.links.leases import Lease
from agents.links.link import Hello, Link, RunnerMissing
from agents.links.orders import CLOSED, Start, is_changing, orders
from agents.links.work_queue import WorkQueue
from agents.models import HostStatus
from agents.runner.wire import WireError
from agents.ssh import install_runner
from agents.ssh.dial import (
    AuthFailed,
    DialError,
    HostKeyChanged,
    HostKeyUnknown,
    SshdBusy,
    Unreachable,
    dial,
)
from agents.ssh.targets import Target

logger = logging.getLogger(__name__)

IDLE_LOOK_S = 5.0
STEADY_S = 10.0
# How often it is asked whether there are GPUs to be watched, if nothing says so earlier.
WATCH_S = 10.0
# With this much unsent, more orders would only wait in memory.
ENOUGH_UNSENT = 4 * 1024 * 1024
MAX_STARTS = 200
# Runners that are being started at once, over all hosts: after a restart of ours, a hundred that share a machine or a
# file server would else slow each other past every deadline. A host that hangs there holds others up for at most this.
GREETINGS = threading.BoundedSemaphore(16)
GREETING_TURN_S = 15.0


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """How the dispatcher keeps its links."""

    deployment: str
    lease_s: float = 15.0
    tick_s: float = 1.0
    dead_s: float = 12.0
    clerks: int = 4


class HostThread:
    def __init__(
        self,
        host_id: int,
        target: Target,
        lease: Lease,
        *,
        desk: ControlPlane,
        turns: WorkQueue,
        key: paramiko.PKey,
        console: str,
        settings: FleetSettings,
        dice: Callable[[], float],
    ) -> None:
        self.host_id, self.target, self.lease = host_id, target, lease
        self._bearer = SealOwner(host_id, target.user, target.pinned_key)
        self._desk, self._turns, self._key, self._settings = desk, turns, key, settings
        self._console = console
        self._backoff = Backoff(dice)
        self._link: Link | None = None
        self._stopping = False
        self._wake = threading.Event()
        self._news: deque[Callable[[], bool]] = deque(maxlen=100)
        self._look = True
        self._compared = False
        self._looked_at = 0.0
        self._ticked_at = time.monotonic()
        self._busy = False
        self._watch: gpu_quarantine.WatchedGpus | None = (
            None  # what the host was last told to watch, on this link
        )
        self._watched_at = 0.0
        self._away = False  # the last dial did not get through either
        self._greeting = False  # holds one of GREETINGS; touched in the host's own thread only
        self.waiting_since: float | None = None  # wall time since when it waits to dial again
        self._thread = threading.Thread(target=self._run, name=f"host {target.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop speaking. Returns at once; `join` waits."""
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
    def compared(self) -> bool:
        """It is up, and what it remembers of this console was compared with the database."""
        return self.up and self._compared

    def tell_mark(self, mark: int) -> None:
        link = self._link
        if link is not None:
            link.mark = mark

    def poke(self) -> None:
        self._look = True
        self._turns.ask(self)

    def hasten(self) -> None:
        """Dial now: a person mended something, or a check found the host well."""
        self._wake.set()

    def hang_up(self) -> None:
        """In a thread of its own: closing can wait for a host that does not listen, and nobody else may."""
        link = self._link
        if link is not None and not link.hung_up:
            link.hung_up = True
            threading.Thread(target=self._close, args=[link], name="hang up", daemon=True).start()

    def _close(self, link: Link) -> None:
        try:
            link.close()
        except Exception:
            logger.exception("the link to %s did not close well", self.target.name)

    def tick(self, now: float, asleep: bool = False) -> None:
        """The pulse, about once a second: pings, deadlines, and a look although nobody asked for one.

        `asleep`: this process stood still since the last one, and would take its own silence for the host's.
        """
        gap, self._ticked_at = now - self._ticked_at, now
        link = self._link
        if link is not None:
            dead_s = self._settings.dead_s
            if asleep or not self.lease.good():
                link.excuse(gap, now)
            elif link.check(now, dead_s / 3, dead_s):
                self._tell_away(HostStatus.UNREACHABLE, f"no answer for {dead_s:g} s")
                self.hang_up()
            elif now - self._looked_at >= (self._settings.tick_s if self._busy else IDLE_LOOK_S):
                self._look = True
        if self._news or self._look or (link is not None and len(link.inbox)):
            self._turns.ask(self)

    def turn(self) -> bool:
        """One bounded piece of database work, by a clerk. Nothing here waits for the host."""
        while self._news:
            if self._news[0]():
                self._desk.host_changed(self.host_id)
            self._news.popleft()
        link = self._link
        if link is None or not self._may_send():
            return False  # whoever holds the lease now asks the host himself; if it is ours again, so do we
        for message in link.asides():
            self._hear_aside(message)
        # Not before the desk knows what is there: it may find that it must not give orders at all.
        if self._look and link.ready and (link.heard_all or not len(link.inbox)):
            link.heard_all = True
            self._look_now(link)
        if batch := link.inbox.batch():
            self._take(link, batch)
        return len(link.inbox) > 0 or (self._look and link.ready and link.waiting_bytes < ENOUGH_UNSENT)

    # The host's own thread.

    def _run(self) -> None:
        while not self._stopping:
            if not self.lease.good():
                self._rest(self._settings.tick_s)
                continue
            began = time.monotonic()
            trouble = self._attempt()
            if time.monotonic() - began > STEADY_S and trouble is Trouble.LOST:
                self._backoff.well()
            self.waiting_since = time.time()
            self._rest(self._backoff.wait_s(trouble))
            self.waiting_since = None

    def _rest(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _attempt(self) -> Trouble:
        """Dial and listen until it ends; what was wrong is in the host's row then."""
        try:
            self._speak()
            return Trouble.LOST
        except (HostKeyChanged, HostKeyUnknown) as error:
            self._tell_away(HostStatus.BLOCKED, str(error))
            return Trouble.KEY
        except AuthFailed as error:
            self._tell_away(HostStatus.AUTH_FAILED, str(error))
            return Trouble.LOGIN
        except (Unreachable, SshdBusy) as error:
            if self._away:  # an sshd that restarts, or is full for a moment, is no news
                self._tell_away(HostStatus.UNREACHABLE, str(error))
            self._away = True
            return Trouble.BUSY if isinstance(error, SshdBusy) else Trouble.AWAY
        except DialError as error:
            self._tell_away(HostStatus.UNUSABLE, str(error))
            return Trouble.BROKEN
        except Exception as error:
            logger.exception("the link to %s failed", self.target.name)
            self._tell_away(HostStatus.UNUSABLE, f"{type(error).__name__}: {error}")
            return Trouble.BROKEN
        finally:
            self._link = None

    def _speak(self) -> None:
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

    def _listen(self, transport: paramiko.Transport) -> None:
        greeting = {
            "deployment": self._settings.deployment,
            "epoch": self.lease.token,
            "console": self._console,
        }
        self._greeting = GREETINGS.acquire(timeout=GREETING_TURN_S)
        try:
            link = Link(transport, self.target.name, greeting, self._may_send, self._told, self._bearer)
            self._compared = False
            self._link, self._look, self._busy = link, True, True
            self._watch, self._watched_at = gpu_quarantine.WatchedGpus(), 0.0
            if self._stopping:  # since before there was a link that could be hung up
                link.close()
            else:
                link.listen(self._greeted)
        finally:
            self._end_greeting()

    def _end_greeting(self) -> None:
        if self._greeting:
            self._greeting = False
            GREETINGS.release()

    def _may_send(self) -> bool:
        return not self._stopping and self.lease.good()

    def _told(self, within_s: float) -> None:
        self._turns.ask(self, within_s)

    def _greeted(self, hello: Hello) -> None:
        self._end_greeting()
        self._away = False
        if hello.sha != install_runner.shipped_sha():
            raise WireError("another runner than the one that was started")
        host_id, token = self.host_id, self.lease.token

        def greeted() -> bool:
            changed = host_status.record_greeting(host_id, token, hello, timezone.now())
            self._compared = True
            return changed

        self._news.append(greeted)
        self._turns.ask(self)

    def _tell_away(self, status: HostStatus, error: str) -> None:
        if self._stopping:
            return
        host_id, token = self.host_id, self.lease.token
        self._news.append(
            lambda: host_status.record_unreachable(host_id, token, status, error, timezone.now())
        )
        self._turns.ask(self)

    # The host's turns.

    def _look_now(self, link: Link) -> None:
        if link.waiting_bytes > ENOUGH_UNSENT:
            return
        self._look = False
        try:
            self._say_difference(link)
        except BaseException:
            self._look = True
            raise

    def _say_difference(self, link: Link) -> None:
        for about, run in link.refusals():
            if about == "pull":
                link.said.pulled.discard(run)
        phases = link.phases()
        wanted = self._desk.wanted(self.host_id)
        self._looked_at = time.monotonic()
        self._busy = is_changing(wanted, phases)
        found = orders(wanted, phases, link.said, self._looked_at)
        starts = [order.run for order in found if isinstance(order, Start)]
        for late in starts[MAX_STARTS:]:
            link.said.unsay(late)
            self._look = True
        starts = starts[:MAX_STARTS]
        documents = self._desk.orders(starts) if starts else {}
        failpoint("orders.read")
        unsaid = {order.run for order in found if isinstance(order, Start)} - documents.keys()
        for order in found:
            if order.run in unsaid:
                link.said.unsay(order.run)
            elif isinstance(order, Start):
                self._start(link, order, documents[order.run])
            else:
                link.say(order)
        if self._looked_at - self._watched_at >= WATCH_S:
            self._watched_at = self._looked_at
            self._say_watch(link)

    def _say_watch(self, link: Link) -> None:
        """GPUs that are kept out of use, for the host to look at until they are free."""
        wanted, before = gpu_quarantine.watched_gpus(self.host_id), self._watch
        for uuid, named in wanted.evictions:
            link.send({"t": "evict", "gpu": uuid, "pids": named})
        if before is None or (wanted.gpus, wanted.soon) != (before.gpus, before.soon):
            link.send({"t": "watch", "gpus": wanted.gpus, "soon": wanted.soon})
        self._watch = wanted

    def _hear_aside(self, message: Mapping[str, Any]) -> None:
        write = gpu_quarantine.record_look if message["t"] == "gpus" else gpu_quarantine.record_eviction
        if write(self.host_id, self.lease.token, message, timezone.now()):
            self._desk.host_changed(self.host_id)
            self._watched_at = 0.0

    def _start(self, link: Link, order: Start, document: Mapping[str, Any]) -> None:
        try:
            link.say(order, document)
        except (WireError, ValueError) as error:
            logger.error("the order of %s cannot be sent: %s", order.run, error)

    def _take(self, link: Link, batch: list[Arrival]) -> None:
        if not self.lease.good():
            return
        failpoint("take.before")
        taken = self._desk.take(self.host_id, self.lease.token, batch)
        failpoint("take.after")
        if not taken.current:
            logger.warning("another dispatcher speaks to %s now", self.target.name)
            self.stop()
            return
        link.inbox.done(len(batch))
        # Bytes that could not be stored now (a full disk) come again only if they are asked for again.
        link.said.pulled -= {each.run for each in batch if isinstance(each.what, Frame)} - taken.acks.keys()
        for run, end in taken.acks.items():
            link.send({"t": "ack", "run": run, "to": end})
        for run, start in taken.pulls.items():
            link.send({"t": "pull", "run": run, "from": start})
        if any(_settles(arrival) for arrival in batch):
            self._look = True
        if any(isinstance(each.what, Fact) and each.what.document.get("busy") for each in batch):
            self._look, self._watched_at = True, 0.0


def _settles(arrival: Arrival) -> bool:
    """Whether what is wanted here most likely changes with it, so that a look pays before anyone asks for it."""
    what = arrival.what
    return isinstance(what, LogEnd) or (isinstance(what, Fact) and what.document.get("phase") == CLOSED)
