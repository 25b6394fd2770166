"""What runs now, as far as those who wait care: what it holds where, and until when at the latest."""

from __future__ import annotations

from typing import NamedTuple


class Claim(NamedTuple):
    """What one replica holds of a host."""

    host: int
    cpus: float
    memory_mb: int
    kind: str
    gpus: int


class Running(NamedTuple):
    """A job with a place. Times are seconds since the epoch; `ends` is when its timeout is over."""

    job: int
    ends: float
    claims: tuple[Claim, ...]
    spot: bool = False
    since: float = 0.0
    stopping: bool = False

    @property
    def gpus(self) -> int:
        return sum(claim.gpus for claim in self.claims)
