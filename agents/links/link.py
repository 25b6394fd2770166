"""One connection to a host and the one runner stream on it."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agents.hosts import seals
from agents.hosts.seals import SealOwner
from agents.infra import clock, untrusted
from agents.infra.failpoints import RECEIVED, failpoint
from agents.infra.text import clean_text
from agents.links.arrivals import ARRIVAL_KINDS, arrivals, preparation_report
from agents.links.control_plane import Fact, Forgotten, PreparationName, PreparationReport
from agents.links.frame_limits import CpuShare, FrameLimits
from agents.links.inbox import Inbox
from agents.links.orders import (
    Forget,
    Order,
    Prepare,
    Pull,
    PullMetrics,
    PullRecording,
    SentOrders,
    Start,
    Stop,
    Unprepare,
)
from agents.links.round_trip import RoundTrip
from agents.links.stream import Stream
from agents.runner.wire import PROTOCOL, Message, WireError
from agents.ssh import install_runner
from agents.ssh.dial import (
    Connection,
    DialError,
    HostMisbehaves,
    open_session,
    raise_if_misbehaving,
    start_command,
)
from agents.ssh.sockets import CONNECTION_ERRORS

logger = logging.getLogger(__name__)

HELLO_S = 60.0
# The time for the inventory and for one message, less the time in which we did not read. Over 256 kbit/s the largest
# message takes half a minute.
INVENTORY_S, MESSAGE_S = 300.0, 300.0
LONGEST_REST_S = 5.0
# How long a report may wait for others of its host. A fact seldom comes alone: the next one, or the first bytes of a
# log, follow within milliseconds. Stored together they are one transaction and one decision instead of three. Log bytes
# wait only where many are on their way (inbox.py), and what waits is stored with them.
GATHER_FACT_S = 0.015
GATHER_PHASE_S = {"claimed": 0.1, "running": 0.05}
# Nobody waits for these.
GATHER_KIND_S = {"forgotten": 0.25, "sample": 0.1, "load": 0.5, "kept": 0.5, "cast": 0.1, "cast_end": 0.1}
PLAIN_ORDER_BYTES = 512
# How many runs of one host are kept in memory. A host keeps a run until it is forgotten; a tenth would be very many.
MAX_RUNS = 100_000
MAX_FREE_MB = 1 << 40
MAX_MARK = 1 << 40
# The year 3000.
MAX_WALL = 32_503_680_000
MAX_SEAL = 100
# The errors that a host reports are written into our log, which is on our disk.
MAX_LOGGED_ERRORS = 100
# About the host itself, not about a run. A newer message about the same GPU repeats all of it.
HOST_MESSAGES = frozenset({"gpus", "evicted", "load", "kept", "discarded"})
# The field that names what such a message is about, where several count.
_ABOUT = {"evicted": "gpu", "discarded": "key"}
MAX_HOST_MESSAGES = 64
MAX_PREPARATIONS = 1000


class LinkBroken(DialError):
    """The login worked, but no runner answers there, or it breaks the protocol."""


class RunnerMissing(LinkBroken):
    """The stream ended before the runner's first line: its file is most likely not there yet."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What the runner reports about itself and its host."""

    boot_id: str
    sha: str
    wall_offset_s: float
    free_mb: int | None
    mark: int = 0
    seal: str = ""
    # Trainyard's time minus the host's monotonic clock.
    monotonic_offset_s: float | None = None

    @classmethod
    def of(cls, message: Message, now: float) -> Hello:
        wall, free, mark = message.get("wall"), message.get("free_mb"), message.get("mark")
        monotonic = untrusted.number(message.get("mono"), MAX_WALL)
        if message.get("v") != PROTOCOL:
            raise WireError(f"a runner of protocol {str(message.get('v'))[:20]}")
        return cls(
            boot_id=clean_text(message.get("boot_id", ""), 64),
            sha=clean_text(message.get("sha", ""), 64),
            # NaN is no time of day, nor is a number that no clock shows.
            wall_offset_s=wall - now if isinstance(wall, int | float) and 0 <= wall <= MAX_WALL else 0.0,
            free_mb=int(free) if isinstance(free, int | float) and 0 <= free <= MAX_FREE_MB else None,
            mark=mark if type(mark) is int and 0 <= mark <= MAX_MARK else 0,
            seal=clean_text(message.get("seal", ""), MAX_SEAL),
            monotonic_offset_s=None if monotonic is None else now - monotonic,
        )


def gather_s(message: Message) -> float:
    """How many seconds the database work for this message may wait for more: infinity if there is none."""
    kind, phase = message["t"], message.get("phase")
    if kind == "fact":
        return GATHER_PHASE_S.get(phase, GATHER_FACT_S) if isinstance(phase, str) else GATHER_FACT_S
    if kind in ARRIVAL_KINDS or kind in HOST_MESSAGES or kind == "prepared":
        return GATHER_KIND_S.get(kind, 0.0)
    return 0.0 if kind == "error" else math.inf


class Link:
    """Reads in the thread that calls `listen`; everything else may be called from any thread and never waits.

    `notify(seconds)` is called when there is something for the control plane: arrivals, or the end of the inventory.
    The database work may wait that many seconds for more.
    """

    def __init__(
        self,
        transport: Connection,
        name: str,
        greeting: Mapping[str, Any],
        may_send: Callable[[], bool],
        notify: Callable[[float], None],
        seal_owner: SealOwner,
    ) -> None:
        self._transport = transport
        self._seal_owner = seal_owner
        self._notify = notify
        self._lock = threading.Lock()
        self._phases: dict[str, str] = {}
        self._refused: list[tuple[str, str]] = []
        self._errors_logged = 0
        self._limits, self._cpu_share = FrameLimits(), CpuShare()
        self._resting, self._closing = False, threading.Event()
        self._inventory_s, self._checked_at = 0.0, time.monotonic()
        self._never_greeted = False
        self.misbehaviour = ""  # why the link is given up, if the host is to blame
        self.inbox = Inbox()
        self.sent = SentOrders()  # used by the host's work item only
        self._host_messages: dict[tuple[str, str], Message] = {}
        self._prepared: dict[PreparationName, PreparationReport] = {}
        self._preparing: dict[tuple[str, str], PreparationName] = {}
        self.hello: Hello | None = None
        self.mark = 0  # the mark that may be sent to the host (recovery.py); set by the lease keeper
        self.inventory_stored = False  # the control plane has stored the inventory
        self.ready = False  # the whole inventory was received: a run that is not in it is not on the host
        self.ended = self.hung_up = False
        self.error = ""
        self.opened_at = self.heard_at = time.monotonic()
        self.pinged_at = 0.0
        self._round_trip = RoundTrip(self._ping)
        channel = open_session(transport)
        try:
            start_command(channel, install_runner.command(install_runner.shipped_sha(), "serve"))
        except CONNECTION_ERRORS as error:
            raise LinkBroken(f"the runner could not be started: {error}") from error
        self._stream = Stream(channel, may_send, name)
        self.send({"t": "hello", "v": PROTOCOL, **greeting})

    def listen(self, greeted: Callable[[Hello], None]) -> None:
        """Read until the end. Raises if no runner answered, or one that must not be trusted."""
        try:
            self._read(greeted)
        except WireError as error:
            if self.hello is not None:
                raise HostMisbehaves(f"its runner broke the protocol: {error}") from error
            raise LinkBroken(f"the runner broke the protocol: {error}") from error
        finally:
            self.ended = True
            self.inbox.close()
            self._stream.close()
        if self.misbehaviour:
            raise HostMisbehaves(self.misbehaviour)
        raise_if_misbehaving(self._transport)
        if self.error:
            raise LinkBroken(f"the runner refused: {self.error}")
        if self._never_greeted:
            raise LinkBroken(f"its runner has not greeted within {HELLO_S:g} s")
        if not self._stream.greeted:
            raise RunnerMissing(self._stderr_text() or "the runner ended without any output")
        if self.hello is None:
            raise LinkBroken(self._stderr_text() or "the runner ended before it had greeted")

    def _read(self, greeted: Callable[[Hello], None]) -> None:
        for batch in self._stream.frames():
            self.heard_at = time.monotonic()
            soonest = math.inf
            for message, payload in batch:
                if self._limits.admit(message, payload, self._phases):
                    soonest = min(soonest, self._handle(message, payload, greeted))
            if soonest < math.inf:
                self._notify(soonest)
            self._rest()

    def _rest(self) -> None:
        """Do not read for a while, if this link has used more than its share of CPU. The host waits meanwhile."""
        seconds = self._cpu_share.rest_s()
        if seconds > 0:
            self._resting = True
            self._closing.wait(min(seconds, LONGEST_REST_S))
            self._resting = False

    def phases(self) -> dict[str, str]:
        """Each run that the host has, and its phase."""
        with self._lock:
            return dict(self._phases)

    def refusals(self) -> list[tuple[str, str]]:
        """(frame type, run) of each order that the runner answered with an error since the last call."""
        with self._lock:
            found, self._refused = self._refused, []
            return found

    def host_messages(self) -> list[Message]:
        """What the host reported about itself since the last call."""
        with self._lock:
            found, self._host_messages = self._host_messages, {}
            return list(found.values())

    def preparation_reports(self) -> list[PreparationReport]:
        """How far the host is with what it prepares: the newest report about each since the last call."""
        with self._lock:
            found, self._prepared = self._prepared, {}
            return list(found.values())

    def preparing(self) -> list[PreparationName]:
        """What the host is at, as it reported last."""
        with self._lock:
            return list(self._preparing.values())

    def send(self, message: Mapping[str, Any], payload: bytes = b"") -> None:
        if message["t"] == "pull":
            self._limits.note_pull(message["run"])
        elif message["t"] == "discard":
            self._limits.note_removal(message["kind"], message["key"])
        self._stream.send(message, payload)

    def pull(self, run: str, start: int) -> None:
        # `raw`: this console packs what comes unpacked (jobs/logs/pieces.py).
        self.send({"t": "pull", "run": run, "from": start, "raw": True})

    def send_order(self, order: Order, document: Mapping[str, Any] | None = None) -> None:
        """Send one order. Of a start or a preparation, `document` is what the host gets with it."""
        match order:
            case Start(run):
                start = {"t": "start", "run": run, "seal": seals.seal_of_run(self._seal_owner, run)}
                self._send_document(start, document)
            case Prepare(name):
                prepare = {"t": "prepare", "kind": name.kind, "key": name.key, "asked": name.asked}
                self._send_document(prepare, document)
            case Unprepare(name):
                self.send({"t": "unprepare", "kind": name.kind, "key": name.key})
            case Stop(run, grace_s):
                # A stop that comes before its start takes the place of the start, and its seal.
                seal = seals.seal_of_run(self._seal_owner, run)
                self.send({"t": "stop", "run": run, "grace_s": grace_s, "seal": seal})
            case Pull(run, start):
                self.pull(run, start)
            case PullRecording(run, shell, start):
                self._limits.note_recording_pull(run, shell)
                self.send({"t": "cast_pull", "run": run, "shell": shell, "from": start})
            case PullMetrics(run, start):
                self._limits.note_metrics_pull(run)
                self.send({"t": "metrics_pull", "run": run, "from": start})
            case Forget(run):
                self.send({"t": "forget", "run": run})

    def _send_document(self, message: Message, document: Mapping[str, Any] | None) -> None:
        data = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        if len(data) > PLAIN_ORDER_BYTES:
            self.send(message | {"z": 1}, zlib.compress(data, 1))
        else:
            self.send(message, data)

    @property
    def waiting_bytes(self) -> int:
        return self._stream.waiting_bytes

    def check(self, now: float, ping_s: float, dead_s: float) -> bool:
        """Ping when it is time. True if the link has to be given up.

        Either nothing was heard for too long, or `misbehaviour` says what the host did.
        """
        self._stream.keep_stderr()
        gap, self._checked_at = now - self._checked_at, now
        if self.hello is None:
            self._never_greeted = now - self.opened_at > HELLO_S
            return self._never_greeted
        if self.inbox.full or self._resting:
            self.heard_at = now
            gap = 0.0  # nobody reads
        if not self.ready:
            self._inventory_s += gap
        if self._stream.count_unfinished(gap) > MESSAGE_S:
            what = f"a message that was not complete after {MESSAGE_S:g} s"
            self.misbehaviour = f"its runner broke the protocol: {what}"
        elif self._stream.overrun:
            self.misbehaviour = f"it reads nothing: {self._stream.waiting_bytes >> 20} MiB wait for it"
        elif self._inventory_s > INVENTORY_S:
            self.misbehaviour = f"its inventory was not complete after {INVENTORY_S:g} s"
        if self.misbehaviour or now - self.heard_at > dead_s:
            return True
        if now - self.pinged_at >= ping_s:
            self.pinged_at = now
            mark = self.mark
            seal = seals.seal_of_mark(self._seal_owner, mark)
            self.send({"t": "ping", "id": int(now * 1000), "mark": mark, "seal": seal})
        return False

    def delay(self) -> float | None:
        """How long a small frame to the host and back takes now; None if that is not known yet. Asking for it sends
        one."""
        return self._round_trip.look(time.monotonic()) if self.ready else None

    def _ping(self, number: int) -> None:
        self.send({"t": "ping", "id": number})

    def excuse(self, gap: float, now: float) -> None:
        """For `gap` seconds nobody sent pings, or listened: that nothing was received is not the host's fault."""
        self.heard_at = min(now, self.heard_at + gap)
        self.opened_at += gap
        self._checked_at = now

    def close(self) -> None:
        """End the link from another thread. May wait a moment for paramiko, so the heartbeat thread does not call
        it."""
        self.inbox.close()
        self._closing.set()
        self._transport.close()
        self._stream.close()  # after that: a goodbye would wait for a host that reads nothing

    def _handle(self, message: Message, payload: bytes, greeted: Callable[[Hello], None]) -> float:
        """Handle a message. Returns how many seconds the database work may wait: infinity if there is none."""
        kind = message["t"]
        if kind in RECEIVED:
            failpoint(f"receive.{kind}")
        if kind == "hello":
            hello = Hello.of(message, clock.now().timestamp())
            self.pinged_at = self.heard_at
            greeted(hello)
            self.hello = hello
        elif kind in ARRIVAL_KINDS:
            self._put_arrivals(message, payload)
        elif kind == "pong":
            self._round_trip.answered(message.get("id"), self.heard_at)
        elif kind == "error":
            self._note_error(message)
        elif kind in HOST_MESSAGES:
            self._keep_host_message(message)
        elif kind == "prepared":
            self._keep_preparation(preparation_report(message))
        return self.inbox.gather_s() if kind == "log" else gather_s(message)

    def _keep_host_message(self, message: Message) -> None:
        about = _ABOUT.get(message["t"], "")
        with self._lock:
            self._host_messages[message["t"], clean_text(message.get(about, ""), 80)] = message
            if len(self._host_messages) > MAX_HOST_MESSAGES:
                del self._host_messages[next(iter(self._host_messages))]

    def _keep_preparation(self, report: PreparationReport) -> None:
        with self._lock:
            self._prepared[report.name] = report
            if len(self._prepared) > MAX_PREPARATIONS:
                del self._prepared[next(iter(self._prepared))]
            self._preparing.pop((report.name.kind, report.name.key), None)
            if report.state == "WORKING" and len(self._preparing) < MAX_PREPARATIONS:
                self._preparing[report.name.kind, report.name.key] = report.name

    def _put_arrivals(self, message: Message, payload: bytes) -> None:
        for arrival in arrivals(message, payload):
            with self._lock:
                if isinstance(arrival.what, Fact):
                    self._phases[arrival.run] = arrival.what.document["phase"]
                elif isinstance(arrival.what, Forgotten):
                    self._phases.pop(arrival.run, None)
                    self._limits.note_forgotten(arrival.run)
                if len(self._phases) > MAX_RUNS:
                    raise WireError(f"more than {MAX_RUNS} runs")
            if not self.inbox.put(arrival):
                return
            if self.inbox.nearly_full:
                self._notify(0.0)  # not only after the whole batch, for which there may be no room
        if message["t"] == "inventory" and message.get("last"):
            self.ready = True

    def _note_error(self, message: Message) -> None:
        about, run = clean_text(message.get("about", ""), 40), clean_text(message.get("run", ""), 80)
        text = clean_text(message.get("message", ""), 500)
        self._errors_logged += 1
        if self._errors_logged <= MAX_LOGGED_ERRORS:
            logger.warning("runner error about %s %s: %s", about, run, text)
        if about in ("hello", "serve"):
            self.error = text or about
        elif run:
            with self._lock:
                self._refused = [*self._refused[-999:], (about, run)]

    def _stderr_text(self) -> str:
        return self._stream.stderr.decode("utf-8", "replace").strip()[-500:]
