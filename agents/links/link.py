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

import paramiko

from agents.hosts import seals
from agents.hosts.seals import SealOwner
from agents.infra.failpoints import RECEIVED, failpoint
from agents.infra.text import clean_text
from agents.links.arrivals import KINDS, arrivals
from agents.links.control_plane import Fact, Forgotten
from agents.links.inbox import Inbox
from agents.links.orders import Forget, Order, Pull, SentOrders, Start, Stop
from agents.links.stream import Stream
from agents.runner.wire import PROTOCOL, Message, WireError
from agents.ssh import install_runner
from agents.ssh.dial import DialError, open_session, start_command
from agents.ssh.sockets import CONNECTION_ERRORS

logger = logging.getLogger(__name__)

HELLO_S = 60.0
# A fact seldom comes alone: the next one, or the first bytes of a log, follow within milliseconds. Taken together they
# are one transaction and one decision instead of three. Bytes never wait.
COMPANY_S, CLAIM_COMPANY_S = 0.015, 0.1
PLAIN_ORDER_BYTES = 512
# What one host may make us remember. A host keeps a run until it is forgotten; a tenth of this would be very many.
MAX_RUNS = 100_000
MAX_FREE_MB = 1 << 40
MAX_MARK = 1 << 40
# The year 3000.
MAX_WALL = 32_503_680_000
MAX_SEAL = 100
# What it complains of is written into our log, which is on our disk.
MAX_COMPLAINTS = 100
# About the host itself, no run of it. A newer one says it all again.
SIDE_MESSAGES = frozenset({"gpus", "evicted"})
MAX_ASIDES = 20


class LinkBroken(DialError):
    """Logged in, but no runner speaks there, or not as it should."""


class RunnerMissing(LinkBroken):
    """The stream ended before a runner said its first word: its file is most likely not there yet."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What the runner says about itself and its host."""

    boot_id: str
    sha: str
    wall_offset_s: float
    free_mb: int | None
    mark: int = 0
    seal: str = ""

    @classmethod
    def of(cls, message: Message, now: float) -> Hello:
        wall, free, mark = message.get("wall"), message.get("free_mb"), message.get("mark")
        if message.get("v") != PROTOCOL:
            raise WireError(f"a runner of protocol {str(message.get('v'))[:20]}")
        return cls(
            boot_id=clean_text(message.get("boot_id", ""), 64),
            sha=clean_text(message.get("sha", ""), 64),
            # Not a number is no time of day either, nor is one that no clock shows.
            wall_offset_s=wall - now if isinstance(wall, int | float) and 0 <= wall <= MAX_WALL else 0.0,
            free_mb=int(free) if isinstance(free, int | float) and 0 <= free <= MAX_FREE_MB else None,
            mark=mark if type(mark) is int and 0 <= mark <= MAX_MARK else 0,
            seal=clean_text(message.get("seal", ""), MAX_SEAL),
        )


class Link:
    """Reads in the thread that calls `listen`; everything else may be called from any thread and never waits.

    `tell` is called whenever there is something for the desk: arrivals, or the end of the inventory.
    """

    def __init__(
        self,
        transport: paramiko.Transport,
        name: str,
        greeting: Mapping[str, Any],
        may_send: Callable[[], bool],
        tell: Callable[[float], None],
        bearer: SealOwner,
    ) -> None:
        self._transport = transport
        self._bearer = bearer
        self._tell = tell
        self._lock = threading.Lock()
        self._phases: dict[str, str] = {}
        self._refused: list[tuple[str, str]] = []
        self._complaints = 0
        self.inbox = Inbox()
        self.said = SentOrders()  # touched in the host's turns only
        self._asides: list[Message] = []
        self.hello: Hello | None = None
        self.mark = 0  # what may be told to the host (recovery.py); set by the steward
        self.heard_all = False  # the inventory is with the desk, too
        self.ready = False  # the whole inventory has been heard: what is not in it is not there
        self.ended = self.hung_up = False
        self.error = ""
        self.opened_at = self.heard_at = time.monotonic()
        self.pinged_at = 0.0
        channel = open_session(transport)
        try:
            start_command(channel, install_runner.command(install_runner.shipped_sha(), "serve"))
        except CONNECTION_ERRORS as error:
            raise LinkBroken(f"the runner could not be started: {error}") from error
        self._stream = Stream(channel, may_send, name)
        self.send({"t": "hello", "v": PROTOCOL, **greeting})

    def listen(self, greeted: Callable[[Hello], None]) -> None:
        """Read until the end. Raises if no runner ever spoke, or one that must not be trusted."""
        try:
            for batch in self._stream.frames():
                self.heard_at = time.monotonic()
                waits = [self._hear(message, payload, greeted) for message, payload in batch]
                if (soonest := min(waits, default=math.inf)) < math.inf:
                    self._tell(soonest)
        except WireError as error:
            raise LinkBroken(f"the runner broke the protocol: {error}") from error
        finally:
            self.ended = True
            self.inbox.close()
            self._stream.close()
        if self.error:
            raise LinkBroken(f"the runner refused: {self.error}")
        if not self._stream.greeted:
            raise RunnerMissing(self._last_words() or "the runner ended without a word")
        if self.hello is None:
            raise LinkBroken(self._last_words() or "the runner ended before it had greeted")

    def phases(self) -> dict[str, str]:
        """Each run that the host has, and its phase."""
        with self._lock:
            return dict(self._phases)

    def refusals(self) -> list[tuple[str, str]]:
        """(kind of order, run) that the runner answered with an error since the last call."""
        with self._lock:
            found, self._refused = self._refused, []
            return found

    def asides(self) -> list[Message]:
        """What the host told about itself since the last call."""
        with self._lock:
            found, self._asides = self._asides, []
            return found

    def send(self, message: Mapping[str, Any], payload: bytes = b"") -> None:
        self._stream.send(message, payload)

    def say(self, order: Order, document: Mapping[str, Any] | None = None) -> None:
        """One order. Of a start, `document` is the order itself."""
        match order:
            case Start(run):
                data = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
                start = {"t": "start", "run": run, "seal": seals.seal_of_run(self._bearer, run)}
                if len(data) > PLAIN_ORDER_BYTES:
                    self.send(start | {"z": 1}, zlib.compress(data, 1))
                else:
                    self.send(start, data)
            case Stop(run, grace_s):
                # A stop that comes first takes the start's place, and its seal.
                seal = seals.seal_of_run(self._bearer, run)
                self.send({"t": "stop", "run": run, "grace_s": grace_s, "seal": seal})
            case Pull(run, start):
                self.send({"t": "pull", "run": run, "from": start})
            case Forget(run):
                self.send({"t": "forget", "run": run})

    @property
    def waiting_bytes(self) -> int:
        return self._stream.waiting_bytes

    def check(self, now: float, ping_s: float, dead_s: float) -> bool:
        """Ping when it is time. True if the link has to be given up: silent too long, or never greeted."""
        self._stream.keep_stderr()
        if self.hello is None and now - self.opened_at > HELLO_S:
            return True
        if self.inbox.full:
            self.heard_at = now
        if self._stream.overrun or (self.hello is not None and now - self.heard_at > dead_s):
            return True
        if self.hello is not None and now - self.pinged_at >= ping_s:
            self.pinged_at = now
            mark = self.mark
            seal = seals.seal_of_mark(self._bearer, mark)
            self.send({"t": "ping", "id": int(now * 1000), "mark": mark, "seal": seal})
        return False

    def excuse(self, gap: float, now: float) -> None:
        """For so long nobody asked, or listened: that nothing was heard is not the host's fault."""
        self.heard_at = min(now, self.heard_at + gap)

    def close(self) -> None:
        """End it from outside. May wait a moment for paramiko's thread, so the pulse does not call it itself."""
        self.inbox.close()
        self._transport.close()
        self._stream.close()  # after that: a goodbye to a host that takes nothing would wait for it

    def _hear(self, message: Message, payload: bytes, greeted: Callable[[Hello], None]) -> float:
        """How long the desk may wait before it looks: for ever, if there is nothing to see."""
        kind = message["t"]
        if kind in RECEIVED:
            failpoint(f"receive.{kind}")
        if kind == "hello":
            self.hello = Hello.of(message, time.time())
            self.pinged_at = self.heard_at
            greeted(self.hello)
        elif kind in KINDS:
            self._keep(message, payload)
        elif kind == "error":
            self._note_error(message)
        elif kind in SIDE_MESSAGES:
            with self._lock:
                self._asides = [*self._asides[-MAX_ASIDES:], message]
        if kind == "fact":
            return CLAIM_COMPANY_S if message.get("phase") == "claimed" else COMPANY_S
        return 0.0 if kind in KINDS or kind in SIDE_MESSAGES or kind == "error" else math.inf

    def _keep(self, message: Message, payload: bytes) -> None:
        for arrival in arrivals(message, payload):
            with self._lock:
                if isinstance(arrival.what, Fact):
                    self._phases[arrival.run] = arrival.what.document["phase"]
                elif isinstance(arrival.what, Forgotten):
                    self._phases.pop(arrival.run, None)
                if len(self._phases) > MAX_RUNS:
                    raise WireError(f"more than {MAX_RUNS} runs")
            if not self.inbox.put(arrival):
                return
            if self.inbox.nearly_full:
                self._tell(0.0)  # not only after the batch, for which there may be no room
        if message["t"] == "inventory" and message.get("last"):
            self.ready = True

    def _note_error(self, message: Message) -> None:
        about, run = clean_text(message.get("about", ""), 40), clean_text(message.get("run", ""), 80)
        words = clean_text(message.get("message", ""), 500)
        self._complaints += 1
        if self._complaints <= MAX_COMPLAINTS:
            logger.warning("runner error about %s %s: %s", about, run, words)
        if about in ("hello", "serve"):
            self.error = words or about
        elif run:
            with self._lock:
                self._refused = [*self._refused[-999:], (about, run)]

    def _last_words(self) -> str:
        return self._stream.stderr.decode("utf-8", "replace").strip()[-500:]
