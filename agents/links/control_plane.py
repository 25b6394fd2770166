"""The port between the links and the control plane: what agents/ asks, and what it hands in.

agents/ has never heard of a job. It asks a `ControlPlane` what should be on a host (`wanted_runs`), fetches the orders
to start (`start_orders`), and hands in what hosts reported (`store_reports`). jobs/host_sync/control_plane.py
implements it; tests have one in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class PreparationName:
    """Something that a host is to have before processes that need it may start there: an image, a tree of files.

    `asked` counts how often it was asked for anew: a host that failed tries again only then.
    """

    kind: str
    key: str
    asked: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What should be true of one process on a host.

    Without `stop` the process should run; with it, it should be over. `pull_from` is the offset from which its log is
    still missing in the control plane (None: no more of the log is wanted). `forget`: the control plane has stored
    everything, and the host may delete the run's directory. `recordings`: (name, offset from which it is missing) of
    each recording of a shell that is still to be fetched. `metrics_from`: the offset from which what it reported is
    missing (None: no more of it is wanted). `order`: the start order of a process that was never
    started, read together with all this; None if the control plane has to be asked for it (`start_orders`).
    `held_back`: it must not start yet, because hosts are still being prepared for it; `prepare` names what this host is
    asked to prepare.
    """

    stop: bool = False
    grace_s: float = 0.0
    pull_from: int | None = None
    forget: bool = False
    order: Mapping[str, Any] | None = None
    recordings: tuple[tuple[str, int], ...] = ()
    metrics_from: int | None = None
    held_back: bool = False
    prepare: tuple[PreparationName, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparationReport:
    """How far a host is with a preparation. `state`: WORKING, READY, FAILED, or LOST (nobody there is at it any more).

    `message` and `tail` are the words of the program that prepares. `fault` of a failure: "user" or "host".
    """

    name: PreparationName
    state: str
    done: int = 0
    total: int | None = None
    unit: str = ""
    message: str = ""
    tail: str = ""
    fault: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def at_work(self) -> bool:
        """Whether it only says how far the host is."""
        return self.state == "WORKING"


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes [start, end) of one process's log. `data` is as it came: zlib-compressed when `z` is true."""

    start: int
    end: int
    z: bool
    data: bytes
    at: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes [start, end) of a log that the host no longer has."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The final size and the digest of a closed run's log."""

    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Fact:
    """The whole fact document of a process, as the host reports it (agents/README.md)."""

    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The host holds nothing of this process, or nothing any more."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The load of a process: cores in use, memory, and for each of its GPUs (utilisation in percent, memory in MiB).

    `connected`: whether it was seen to have a connection to its peers; None where nobody looked. `power` in W and
    `temperature` in °C are of its GPUs. `network` (received, sent) and `disks` (read, written) are of its whole host,
    in bytes per second. Older runners report none of these.
    """

    cpu: float
    memory_mb: int | None
    gpus: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    disk_free_mb: int | None = None
    connected: bool | None = None
    power: Mapping[str, int] = field(default_factory=dict)
    temperature: Mapping[str, int] = field(default_factory=dict)
    network: tuple[int | None, int | None] = (None, None)
    disks: tuple[int | None, int | None] = (None, None)


@dataclass(frozen=True, slots=True)
class RecordingPiece:
    """Bytes [start, end) of the recording of a shell. `data` is zlib-compressed when `z` is true."""

    shell: str
    start: int
    end: int
    z: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class RecordingEnd:
    """Nobody writes this recording any more. Without a digest its end is missing: its writer was killed."""

    shell: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class MetricsPiece:
    """Bytes [start, end) of the journal of what a process reported, whole lines. `data` is compressed when `z` is
    true."""

    start: int
    end: int
    z: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class MetricsEnd:
    """Nothing more will be in this journal. The digest is that of its lines."""

    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """One report of a host about one run."""

    run: str
    what: (
        Fact
        | Frame
        | Gap
        | LogEnd
        | Forgotten
        | Sample
        | RecordingPiece
        | RecordingEnd
        | MetricsPiece
        | MetricsEnd
    )


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to `store_reports`: up to where each log is stored, and which logs to pull (again) from where.

    `current` is False when the lease token was no longer the current one: nothing was written, and the caller must stop
    sending.
    """

    acks: Mapping[str, int] = field(default_factory=dict)
    pulls: Mapping[str, int] = field(default_factory=dict)
    current: bool = True


class ControlPlane(Protocol):
    """What jobs/ implements for the links."""

    def wanted_runs(self, host_id: int, ordered: Collection[str] = ()) -> Mapping[str, Wanted]:
        """Every process of this host that is not yet forgotten, by run id, in one trip to the database.

        `ordered`: the runs whose start order was sent already; theirs are not read again.
        """

    def start_orders(self, runs: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """The start orders of these runs (agents/README.md, frame `start`). A run that is missing must not start."""

    def preparation_orders(
        self, host_id: int, names: Sequence[PreparationName]
    ) -> Mapping[PreparationName, Mapping[str, Any]]:
        """What each of these preparations is, for the host. One that is missing is not wanted any more."""

    def give_up_preparations(
        self, host_id: int, token: int, names: Sequence[PreparationName]
    ) -> Collection[PreparationName]:
        """Those of these that the host is to end, because nothing waits for them. It is at all of them."""

    def store_preparations(self, host_id: int, token: int, reports: Sequence[PreparationReport]) -> None:
        """Store how far a host is. A report that comes twice changes nothing."""

    def store_reports(self, host_id: int, token: int, arrivals: Sequence[Arrival]) -> Accepted:
        """Store what a host reported, in one transaction that checks the token. A report that comes twice changes
        nothing."""

    def host_changed(self, host_id: int) -> None:
        """The host came up, became unreachable or was rebooted: the control plane should decide again."""

    def stuck_s(self) -> float:
        """For how long the control plane has been deciding about the same things. Never waits."""
