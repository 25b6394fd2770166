"""Fake hosts: they obey the control plane as real hosts do, but run nothing. `started_runs` lists what they started."""

from __future__ import annotations

import hashlib
import time
import zlib
from dataclasses import dataclass, field

from django.utils import timezone

from agents.infra.clock import Clock
from agents.links.control_plane import (
    Arrival,
    Fact,
    Forgotten,
    Frame,
    LogEnd,
    PreparationReport,
)
from agents.links.orders import (
    Forget,
    Prepare,
    Pull,
    PullMetrics,
    PullRecording,
    SentOrders,
    Start,
    Stop,
    Unprepare,
    orders_to_send,
)
from jobs.host_sync import prepared
from jobs.host_sync.control_plane import JobsControlPlane
from jobs.host_sync.shipping import Shipping, shipments_of
from jobs.lifecycle.advance import advance_quietly
from jobs.scheduling.scheduler import schedule_quietly


class InlineDecider:
    """A decider without a thread: it decides and places at once, in the transaction of the test."""

    def submit(self, jobs, long_tails=(), place=False):
        advanced = advance_quietly(sorted(jobs), Clock()) if jobs else None
        if place or (advanced and advanced.freed):
            schedule_quietly(timezone.now())

    def stuck_s(self):
        return 0.0

    def stop(self, timeout_s=0):
        pass


class InlineSettler:
    """A settler without a thread."""

    def __init__(self, settled):
        self.settled = settled

    def submit(self, host_id, progress=False):
        self.settled(*prepared.settle(timezone.now(), [host_id]))

    def stuck_s(self):
        return 0.0

    def stop(self, timeout_s=0):
        pass


class InlineControlPlane(JobsControlPlane):
    def __init__(self):
        settler = InlineSettler(self._settled)
        super().__init__(lambda hosts: (), InlineDecider(), settler, NoShipping(settler.submit))


class NoShipping(Shipping):
    """What is to be shipped is known, and nothing is shipped."""

    def update(self, host_id, names):
        self.wanted = getattr(self, "wanted", {}) | {host_id: shipments_of(host_id, names)}


def frame(start, data, z=True, at=None):
    payload = zlib.compress(data, 1) if z else data
    return Frame(start, start + len(data), z, payload, at if at is not None else ((start, time.time()),))


def digest_of(data):
    if len(data) <= 8 << 20:
        return "sha256:" + hashlib.sha256(data).hexdigest()
    blocks = [hashlib.sha256(data[i : i + (8 << 20)]).digest() for i in range(0, len(data), 8 << 20)]
    return "blocks8m:" + hashlib.sha256(b"".join(blocks)).hexdigest()


@dataclass
class FakeRun:
    order: dict | None
    phase: str = "running"
    log: bytes = b""
    exit: dict = field(default_factory=dict)
    never_started: bool = False
    seal: str = ""

    def fact(self, boot_id):
        now = time.time()
        known = {"phase": self.phase, "boot_id": boot_id, "survivors": [], "seal": self.seal, **self.exit}
        if self.order is not None:
            known |= {"claimed_at": now}
            if self.phase != "claimed" and not self.never_started:
                known |= {"started_at": now}
        over = self.phase == "closed"
        digest = digest_of(self.log) if over else None
        return Fact(known | {"log": {"size": len(self.log), "final": over, "digest": digest}})


@dataclass
class FakeHost:
    row: object
    boot_id: str = "boot-1"
    runs: dict = field(default_factory=dict)
    started_runs: list = field(default_factory=list)
    # What it was asked to prepare: by name, what it was told. It does so when the test calls `prepare`.
    asked: dict = field(default_factory=dict)
    # What it has reported to be at, and what it was told to end.
    preparing: list = field(default_factory=list)
    ended: list = field(default_factory=list)

    def prepare(self, control_plane, name, state="READY", **report):
        """Report how far a preparation is."""
        self.row.refresh_from_db()
        self.preparing = [each for each in self.preparing if each != name]
        self.preparing += [name] if state == "WORKING" else []
        reports = [PreparationReport(name, state, **report)]
        control_plane.store_preparations(self.row.pk, self.row.lease_token, reports)

    def reconcile(self, control_plane):
        """Ask what is wanted, do it, and report it. True if there was anything to do."""
        wanted = control_plane.wanted_runs(self.row.pk)
        phases = {run: fake_run.phase for run, fake_run in self.runs.items()}
        found = orders_to_send(wanted, phases, SentOrders(), 0.0, self.preparing)
        arrivals = [each for order in found for each in self.obey(order, control_plane)]
        if arrivals:
            self.report(control_plane, arrivals)
        return bool(arrivals)

    def obey(self, order, control_plane):
        if isinstance(order, Prepare):
            documents = control_plane.preparation_orders(self.row.pk, [order.name])
            news = {name: document for name, document in documents.items() if name not in self.asked}
            self.asked.update(news)
            return []
        if isinstance(order, Unprepare):
            self.row.refresh_from_db()
            names = control_plane.give_up_preparations(self.row.pk, self.row.lease_token, [order.name])
            self.ended += names
            self.preparing = [each for each in self.preparing if each not in names]
            return []
        fake_run = self.runs.get(order.run)
        match order:
            case Start(run):
                document = control_plane.start_orders([run]).get(run)
                if document is None:
                    return []
                assert fake_run is None
                self.assert_free(document)
                self.started_runs.append(run)
                fake_run = self.runs[run] = FakeRun(document, log=f"hello from {run}\n".encode())
            case Stop(run):
                if fake_run is None:
                    fake_run = self.runs[run] = FakeRun(None, "closed", exit={"why": "tombstone"})
                elif fake_run.phase != "closed":
                    fake_run.phase, fake_run.exit = "closed", {"exit_signal": 15, "why": "stop"}
            case Pull(run, start):
                if fake_run is None:
                    return []
                frames = (
                    [Arrival(run, frame(start, fake_run.log[start:]))] if start < len(fake_run.log) else []
                )
                end = LogEnd(len(fake_run.log), digest_of(fake_run.log))
                return [*frames, *([Arrival(run, end)] if fake_run.phase == "closed" else [])]
            case PullRecording() | PullMetrics():
                return []  # no shell of a fake host writes one, and no program reports anything
            case Forget(run):
                self.runs.pop(run, None)
                return [Arrival(run, Forgotten())]
        return [Arrival(order.run, fake_run.fact(self.boot_id))]

    def assert_free(self, document):
        """As flock and bind do on a real host: fail if a living run holds the same GPU or port."""
        alive = [fake_run.order for fake_run in self.runs.values() if fake_run.phase != "closed"]
        held = {each for order in alive for each in (*order["gpus"], order["port"])}
        assert not held & {*document["gpus"], document["port"]}

    def report(self, control_plane, arrivals):
        self.row.refresh_from_db()
        accepted = control_plane.store_reports(self.row.pk, self.row.lease_token, arrivals)
        assert accepted.current
        return accepted

    def end(self, control_plane, run, **exit):
        """End the run: its program and all its processes are gone."""
        fake_run = self.runs[run]
        fake_run.phase, fake_run.exit = "closed", {"why": "exit", **exit}
        self.report(control_plane, [Arrival(run, fake_run.fact(self.boot_id))])


def settle(control_plane, *hosts):
    """Let every host reconcile until none has anything to do."""
    for _ in range(50):
        if not max([host.reconcile(control_plane) for host in hosts]):
            return
    raise AssertionError("the hosts never came to rest")
