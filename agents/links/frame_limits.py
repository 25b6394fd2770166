"""What a runner may send on one link, how often, and how much of this process's time it may take.

A job can replace the runner's file of its login, so whatever speaks on a link may be hostile. Each limit is far above
what a runner of ours sends. A frame that is worthless by itself is dropped; a flood, and what no runner sends, ends the
link by a WireError that says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container

from agents.links.arrivals import ARRIVAL_KINDS
from agents.runner.wire import Message, WireError
from agents.ssh.peer_limits import TokenBucket

# A runner samples each living run every ten seconds.
MIN_BETWEEN_SAMPLES_S = 5.0
# (at once, a second), by the type of a frame. A runner answers orders and pings, and reports changes.
RATES = {
    "fact": (50_000, 500.0),
    "forgotten": (50_000, 500.0),
    # Each gap is a row. A program that cuts its own log makes one every few seconds.
    "gap": (5_000, 20.0),
    "log_end": (50_000, 500.0),
    "error": (20_000, 100.0),
    "gpus": (100, 2.0),
    "evicted": (500, 2.0),
    "load": (100, 2.0),
    # At most one in half a minute, and one in five seconds while something is removed.
    "kept": (100, 0.5),
    # After an inventory up to 500, then at most one a second of each that is under way.
    "prepared": (2_000, 20.0),
    "pong": (100, 10.0),
}
# The facts of one run, which change a dozen times in its life.
FACTS_OF_A_RUN = (100, 2.0)
# Frames that are dropped. After a pause of the database, a host may have megabytes of old samples on their way.
DROPPED = (20_000, 100.0)
# The runs whose facts and samples are counted. Beyond this all counts begin anew.
MAX_COUNTED = 20_000
OF_A_LOG = frozenset({"log", "gap", "log_end"})
OF_A_RECORDING = frozenset({"cast", "cast_end"})
OF_METRICS = frozenset({"metrics", "metrics_end"})
WITH_PAYLOAD = frozenset({"log", "cast", "metrics"})
# A link may take a quarter of a core in the long run, and several seconds at once: an inventory of very many runs.
CPU_SHARE, CPU_BURST_S = 0.25, 4.0


class FrameLimits:
    """Looks at each frame before it is handled. Used by the thread that reads the link, but for the `note` methods."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rates = {kind: TokenBucket(*rate, clock) for kind, rate in RATES.items()}
        self._dropped = TokenBucket(*DROPPED, clock)
        self._facts: dict[str, TokenBucket] = {}
        self._sampled: dict[str, float] = {}
        self._pulled: set[str] = set()
        self._recordings: set[tuple[str, str]] = set()
        self._metrics: set[str] = set()
        self._metrics_ends: set[str] = set()
        self._removals: set[tuple[str, str]] = set()
        self._greeted = self._inventory_over = False

    def note_pull(self, run: str) -> None:
        """The log of this run was asked for on this link."""
        self._pulled.add(run)

    def note_recording_pull(self, run: str, shell: str) -> None:
        """One piece of this recording was asked for."""
        self._recordings.add((run, shell))

    def note_metrics_pull(self, run: str) -> None:
        """One piece of what this run has reported was asked for. Behind the last piece stands the end."""
        self._metrics.add(run)
        self._metrics_ends.add(run)

    def note_removal(self, kind: str, key: str) -> None:
        """The host is to remove this of what it keeps."""
        self._removals.add((kind, key))

    def note_forgotten(self, run: str) -> None:
        self._pulled.discard(run)
        self._metrics.discard(run)
        self._metrics_ends.discard(run)

    def admit(self, message: Message, payload: bytes, known: Container[str]) -> bool:
        """Whether the frame is to be handled; else it is dropped. `known` holds the runs that the host has reported."""
        kind = message["t"]
        if payload and kind not in WITH_PAYLOAD:
            raise WireError(f"{len(payload)} bytes behind a frame of type {kind[:40]}")
        self._check_order(kind, message)
        run = message.get("run")
        run = run if isinstance(run, str) else ""
        if kind in OF_A_LOG and run not in self._pulled:
            return self._drop(kind)
        if kind in OF_A_RECORDING and not self._is_asked_piece(run, message.get("shell")):
            return self._drop(kind)
        if kind in OF_METRICS and not self._is_asked_metrics(kind, run):
            return self._drop(kind)
        if kind == "discarded":
            return self._is_asked_removal(message) or self._drop(kind)
        if kind == "sample" and not (run in known and self._sample_is_due(run)):
            return self._drop(kind)
        if kind not in RATES and kind not in ARRIVAL_KINDS and kind != "hello":
            return self._drop(kind)
        rate = self._rates.get(kind)
        if (rate is not None and not rate.take()) or (kind == "fact" and not self._fact_is_due(run)):
            raise WireError(f"too many frames of type {kind}")
        return True

    def _check_order(self, kind: str, message: Message) -> None:
        """A greeting, once, then an inventory, once. Before the greeting a runner may only refuse ours."""
        if kind == "hello":
            if self._greeted:
                raise WireError("a second greeting")
            self._greeted = True
        elif not self._greeted and kind != "error":
            raise WireError(f"a frame of type {kind[:40]} before the greeting")
        elif kind == "inventory":
            if self._inventory_over:
                raise WireError("a second inventory")
            self._inventory_over = bool(message.get("last"))

    def _is_asked_piece(self, run: str, shell: object) -> bool:
        """Whether this piece was asked for. It is the only answer."""
        if not isinstance(shell, str) or (run, shell) not in self._recordings:
            return False
        self._recordings.discard((run, shell))
        return True

    def _is_asked_removal(self, message: Message) -> bool:
        name = (str(message.get("kind")), str(message.get("key")))
        is_asked = name in self._removals
        self._removals.discard(name)
        return is_asked

    def _is_asked_metrics(self, kind: str, run: str) -> bool:
        asked = self._metrics_ends if kind == "metrics_end" else self._metrics
        if run not in asked:
            return False
        self._metrics.discard(run)
        if kind == "metrics_end":
            self._metrics_ends.discard(run)
        return True

    def _drop(self, kind: str) -> bool:
        if not self._dropped.take():
            raise WireError(f"too many frames that nobody asked for, the last one of type {kind[:40]}")
        return False

    def _sample_is_due(self, run: str) -> bool:
        now = self._clock()
        if now - self._sampled.get(run, -MIN_BETWEEN_SAMPLES_S) < MIN_BETWEEN_SAMPLES_S:
            return False
        if len(self._sampled) >= MAX_COUNTED:
            self._sampled.clear()
        self._sampled[run] = now
        return True

    def _fact_is_due(self, run: str) -> bool:
        if run not in self._facts:
            if len(self._facts) >= MAX_COUNTED:
                self._facts.clear()
            self._facts[run] = TokenBucket(*FACTS_OF_A_RUN, self._clock)
        return self._facts[run].take()


class CpuShare:
    """Measures the CPU time of the calling thread, and tells it to rest when it has used more than its share."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._bucket = TokenBucket(CPU_BURST_S, CPU_SHARE, clock)
        self._cpu, self._used = cpu, cpu()

    def rest_s(self) -> float:
        """How many seconds to rest after what was done since the last call."""
        before, self._used = self._used, self._cpu()
        return self._bucket.spend(self._used - before)
