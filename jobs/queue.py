"""First come, first served, over many waiting jobs. Pure: jobs and hosts in, seats and reasons out.

A job that does not fit now keeps every host that could ever hold one of its replicas from the jobs behind it, so that a
large gang is not passed for ever by small ones. Jobs behind it may use what it could never use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from jobs.rules.machines import Needs
from jobs.rules.placement import Ask, HostView, Lacking, Placer, Seat

BEHIND = "Waits for its turn: earlier jobs wait for the same hosts."
# How far from the ports of one attempt those of the next are tried: a stranger may have taken a row of them.
PORTS_APART = 101


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that wants to be placed in this location."""

    job: int
    asks: tuple[Ask, ...]
    location: str
    attempt: int = 1


@dataclass(slots=True)
class Queue:
    """One pass. Offer the jobs in their order; each is answered with its seats, or why it has none."""

    hosts: dict[int, HostView]
    ports: range
    held: set[int] = field(default_factory=set)
    _placer: Placer = field(init=False)

    def __post_init__(self) -> None:
        self._renew()

    @property
    def full(self) -> bool:
        """Nobody behind can be placed any more."""
        return len(self.held) >= len(self.hosts)

    def offer(self, waiting: Waiting) -> tuple[Seat, ...] | str:
        spread = waiting.job + PORTS_APART * waiting.attempt
        answer = self._placer.place(waiting.asks, waiting.location, spread=spread)
        if isinstance(answer, Lacking):
            return self._keep_for(waiting, answer)
        self._take(waiting.asks, answer)
        return answer

    def _keep_for(self, waiting: Waiting, lacking: Lacking) -> str:
        useful = {host.id for host in self.hosts.values() if could_hold(host, waiting)}
        behind = bool(useful & self.held)
        if not useful <= self.held:
            self.held |= useful
            self._renew()
        return BEHIND if behind else lacking.text

    def _take(self, asks: Sequence[Ask], seats: Iterable[Seat]) -> None:
        needs_of = {ask.replica: ask.needs for ask in asks}
        for seat in seats:
            host, needs = self.hosts[seat.host_id], needs_of[seat.replica]
            self.hosts[host.id] = replace(
                host,
                used_cpus=host.used_cpus + needs.cpus,
                used_memory_mb=host.used_memory_mb + needs.memory_mb,
                used_gpus=host.used_gpus | set(seat.gpus),
                used_ports=host.used_ports | {seat.port},
            )

    def _renew(self) -> None:
        free = [host for host in self.hosts.values() if host.id not in self.held]
        self._placer = Placer(free, self.ports)


def could_hold(host: HostView, waiting: Waiting) -> bool:
    """Could it hold a replica of this job, were it empty?"""
    return host.location == waiting.location and any(
        _fits_empty(host, needs) for needs in {ask.needs for ask in waiting.asks}
    )


def _fits_empty(host: HostView, needs: Needs) -> bool:
    gpus = sum(gpu.accelerator_type == needs.accelerator_type for gpu in host.gpus)
    return host.cpus >= needs.cpus and host.memory_mb >= needs.memory_mb and gpus >= needs.gpus
