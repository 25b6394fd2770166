"""The desk: where whoever sends orders to hosts meets whoever decides them.

agents/ has never heard of a job. It asks a Desk what should be on a host (`wanted`), fetches the orders that are to be
started, and hands in what hosts told (`take`). jobs/ implements it; tests have one in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Wanted:
    """What should be true of one process on a host.

    Without `stop` it should run; with it, it should be over. `pull_from` is the offset from which its log is still
    missing here (None: nothing more is wanted). `forget`: everything is safe here, the host may delete its directory.
    """

    stop: bool = False
    grace_s: float = 0.0
    pull_from: int | None = None
    forget: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes [start, end) of one process's log; `data` is as it came, zlib-compressed when `z`."""

    start: int
    end: int
    z: bool
    data: bytes
    at: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogEnd:
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Fact:
    """The whole fact document of a process, as the host tells it (agents/README.md)."""

    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The host holds nothing of this process (any more)."""


@dataclass(frozen=True, slots=True)
class Sample:
    """How busy a process is: cores in use, memory, and for each of its GPUs (utilisation in percent, memory in MiB)."""

    cpu: float
    memory_mb: int | None
    gpus: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    disk_free_mb: int | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    run: str
    what: Fact | Frame | Gap | LogEnd | Forgotten | Sample


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to `take`: how far each log is safe here, and what is to be pulled (again) from where.

    `current` is False when the lease token was not the current one any more: nothing was written, stop speaking.
    """

    acks: Mapping[str, int] = field(default_factory=dict)
    pulls: Mapping[str, int] = field(default_factory=dict)
    current: bool = True


class ControlPlane(Protocol):
    def wanted(self, host_id: int) -> Mapping[str, Wanted]:
        """Every process of this host that is not yet done with, by run id, in one or two queries."""

    def orders(self, runs: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """The start orders of these runs (agents/README.md, frame `start`). What is missing is not to start."""

    def take(self, host_id: int, token: int, arrivals: Sequence[Arrival]) -> Accepted:
        """Store what a host told, in one transaction that checks the token. What is doubled changes nothing."""

    def host_changed(self, host_id: int) -> None:
        """The host went up, away, or rebooted: whoever decides should look again."""
