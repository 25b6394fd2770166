"""Which orders to send to a host: the difference between the wanted runs and what the host reports. Pure.

A run that the host reports and nobody here knows is left alone: it may come from a newer database than ours. An order
that was sent on a connection is not sent again before `REPEAT_S`, and then only while the host's reports do not show it
done. A new connection starts with nothing sent, so all orders are sent again, and every order is safe to get twice.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field

from agents.links.control_plane import (
    Arrival,
    Fact,
    LogEnd,
    MetricsEnd,
    MetricsPiece,
    PreparationName,
    RecordingEnd,
    RecordingPiece,
    Wanted,
)

REPEAT_S = 15.0
# A host answers this one when its program reports something, which may be never.
REPEAT_METRICS_S = 300.0
CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Start:
    run: str


@dataclass(frozen=True, slots=True)
class Stop:
    run: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class Pull:
    run: str
    start: int


@dataclass(frozen=True, slots=True)
class PullRecording:
    """The host answers with one piece, so the next order comes when that is stored: then it has another start."""

    run: str
    shell: str
    start: int


@dataclass(frozen=True, slots=True)
class PullMetrics:
    """The host answers with one piece, as soon as there is one."""

    run: str
    start: int


@dataclass(frozen=True, slots=True)
class Forget:
    run: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """For all runs that need it, it is sent once."""

    name: PreparationName


@dataclass(frozen=True, slots=True)
class Unprepare:
    """No process waits for it any more, and the host is still at it."""

    name: PreparationName


Order = Start | Stop | Pull | PullRecording | PullMetrics | Forget | Prepare | Unprepare


@dataclass(slots=True)
class SentOrders:
    """What was sent on this connection: order → when. `pulled` holds the runs whose log the host is sending."""

    at: dict[Order, float] = field(default_factory=dict)
    pulled: set[str] = field(default_factory=set)

    def should_send(self, order: Order, now: float) -> bool:
        """Whether this order is to be sent now; if so, it is noted as sent."""
        before = self.at.get(order)
        pause = REPEAT_METRICS_S if isinstance(order, PullMetrics) else REPEAT_S
        if before is not None and now - before < pause:
            return False
        self.at[order] = now
        return True

    def started(self) -> list[str]:
        """The runs whose start was sent."""
        return [order.run for order in self.at if isinstance(order, Start)]

    def refused(self, about: str, run: str) -> None:
        """The host has answered this order with an error: it is sent again when the runs are compared next."""
        if about == "pull":
            self.pulled.discard(run)
        elif about == "metrics_pull":
            self.at = {
                order: at
                for order, at in self.at.items()
                if not (isinstance(order, PullMetrics) and order.run == run)
            }

    def retract(self, run: str) -> None:
        """The start was not sent after all: try again next time."""
        self.at.pop(Start(run), None)
        self.pulled.discard(run)

    def keep_only(self, wanted: Mapping[str, Wanted], preparing: Container[PreparationName] = ()) -> None:
        """Drop the notes of all other runs, of the pieces of recordings that have come, and of what has ended."""
        prepared = {name for want in wanted.values() for name in want.prepare}
        self.at = {
            order: when
            for order, when in self.at.items()
            if _is_wanted(order, wanted, preparing if isinstance(order, Unprepare) else prepared)
        }
        self.pulled &= wanted.keys()


def orders_to_send(
    wanted: Mapping[str, Wanted],
    reported: Mapping[str, str],
    sent: SentOrders,
    now: float,
    preparing: Collection[PreparationName] = (),
) -> list[Order]:
    """The orders to send, in the order of `wanted`. `reported` is each run's phase, `now` a monotonic time.

    `preparing`: what the host reports to be at.
    """
    sent.keep_only(wanted, preparing)
    found: list[Order] = []
    for run, want in wanted.items():
        found += [order for order in _of(run, want, reported.get(run), sent) if sent.should_send(order, now)]
    sent.pulled |= {order.run for order in found if isinstance(order, Pull)}
    return found + [order for order in _needless(wanted, preparing) if sent.should_send(order, now)]


def _needless(wanted: Mapping[str, Wanted], preparing: Collection[PreparationName]) -> list[Order]:
    """What the host is at for nobody. Where it was asked for anew meanwhile, what it is at does as well."""
    needed = {(name.kind, name.key) for want in wanted.values() for name in want.prepare}
    return [Unprepare(name) for name in preparing if (name.kind, name.key) not in needed]


def _is_wanted(order: Order, wanted: Mapping[str, Wanted], names: Container[PreparationName]) -> bool:
    if isinstance(order, Prepare | Unprepare):
        return order.name in names
    if order.run not in wanted:
        return False
    if isinstance(order, PullMetrics):
        return order.start == wanted[order.run].metrics_from
    return not isinstance(order, PullRecording) or (order.shell, order.start) in wanted[order.run].recordings


def is_changing(wanted: Mapping[str, Wanted], reported: Mapping[str, str]) -> bool:
    """Whether an order is under way, so that it pays to compare again soon without a hint."""
    return any(want.stop or want.forget or run not in reported for run, want in wanted.items())


def _of(run: str, want: Wanted, phase: str | None, sent: SentOrders) -> list[Order]:
    if want.forget and phase in (None, CLOSED):
        return [Forget(run)]
    found: list[Order] = []
    if want.stop and phase != CLOSED:
        # The host does not know the run: the stop itself closes it, as a tombstone that no later start gets past.
        found.append(Stop(run, want.grace_s))
    elif phase is None and want.held_back:
        return [Prepare(name) for name in want.prepare]
    elif phase is None:
        found.append(Start(run))
    if (
        want.pull_from is not None
        and run not in sent.pulled
        and (phase is not None or found[:1] == [Start(run)])
    ):
        found.append(Pull(run, want.pull_from))
    if want.metrics_from is not None and (phase is not None or found[:1] == [Start(run)]):
        found.append(PullMetrics(run, want.metrics_from))
    if phase is not None:
        found += [PullRecording(run, shell, start) for shell, start in want.recordings]
    return found


def brings_orders(arrival: Arrival) -> bool:
    """Whether this arrival most likely changes what is wanted of its host, so that comparing at once pays."""
    return isinstance(arrival.what, RecordingPiece | RecordingEnd | MetricsPiece | MetricsEnd)


def ends_a_run(arrival: Arrival) -> bool:
    what = arrival.what
    return isinstance(what, LogEnd) or (isinstance(what, Fact) and what.document.get("phase") == CLOSED)
