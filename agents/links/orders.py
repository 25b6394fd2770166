"""What to say to a host: the difference between what is wanted there and what it reports. Pure.

What a host reports and nobody here knows is left alone: it may belong to a newer truth than ours. What has been said
once on a connection is not said again before `AGAIN_S`, and then only while the host's reports do not show it done; a
new connection starts with nothing said, so everything is said again, and every order is safe to hear twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agents.links.control_plane import Wanted

AGAIN_S = 15.0
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
class Forget:
    run: str


Order = Start | Stop | Pull | Forget


@dataclass(slots=True)
class SentOrders:
    """What has been said on this connection: order → when. `pulled` holds the runs whose log is on its way."""

    at: dict[Order, float] = field(default_factory=dict)
    pulled: set[str] = field(default_factory=set)

    def fresh(self, order: Order, now: float) -> bool:
        """Whether this is to be said now; if so, it is noted as said."""
        before = self.at.get(order)
        if before is not None and now - before < AGAIN_S:
            return False
        self.at[order] = now
        return True

    def unsay(self, run: str) -> None:
        """The desk did not give it out after all: ask again next time."""
        self.at.pop(Start(run), None)
        self.pulled.discard(run)

    def forget_all_but(self, runs: Mapping[str, object]) -> None:
        self.at = {order: when for order, when in self.at.items() if order.run in runs}
        self.pulled &= runs.keys()


def orders(
    wanted: Mapping[str, Wanted], reported: Mapping[str, str], said: SentOrders, now: float
) -> list[Order]:
    """What is to be said, in the order of `wanted`. `reported` is each run's phase, `now` a monotonic time."""
    said.forget_all_but(wanted)
    found: list[Order] = []
    for run, want in wanted.items():
        found += [order for order in _of(run, want, reported.get(run), said) if said.fresh(order, now)]
    said.pulled |= {order.run for order in found if isinstance(order, Pull)}
    return found


def is_changing(wanted: Mapping[str, Wanted], reported: Mapping[str, str]) -> bool:
    """Whether something is under way here, so that it pays to look again soon without being told."""
    return any(want.stop or want.forget or run not in reported for run, want in wanted.items())


def _of(run: str, want: Wanted, phase: str | None, said: SentOrders) -> list[Order]:
    if want.forget and phase in (None, CLOSED):
        return [Forget(run)]
    found: list[Order] = []
    if want.stop and phase != CLOSED:
        # Unknown there: the stop itself closes the run, by taking the place of its start.
        found.append(Stop(run, want.grace_s))
    elif phase is None:
        found.append(Start(run))
    if (
        want.pull_from is not None
        and run not in said.pulled
        and (phase is not None or found[:1] == [Start(run)])
    ):
        found.append(Pull(run, want.pull_from))
    return found
