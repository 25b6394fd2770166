"""Fair share: what a project has used lately, compared with its weight.

Use is counted in GPU-seconds and decays by half in `HALF_LIFE_S`. The project that has used less of its share comes
first. Every amount is valid for one moment: to bring it forward, decay it by the seconds that have passed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

HALF_LIFE_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Share:
    """A project's weight, and its decayed use until now."""

    weight: float = 1.0
    used_gpu_seconds: float = 0.0

    @property
    def normalized_use(self) -> float:
        """Use divided by weight: the lower, the sooner its jobs are placed. A project without weight comes last."""
        return self.used_gpu_seconds / self.weight if self.weight > 0 else math.inf


EQUAL = Share()


def decayed(amount: float, seconds: float, half_life_s: float = HALF_LIFE_S) -> float:
    """What is left of an amount after so many seconds. If the clock was set back, nothing decays."""
    return amount * math.pow(0.5, max(seconds, 0.0) / half_life_s)


def used(gpus: float, from_s_ago: float, to_s_ago: float = 0.0, half_life_s: float = HALF_LIFE_S) -> float:
    """The decayed use, now, of that many GPUs held from so many seconds ago to so many seconds ago."""
    since, until = max(from_s_ago, 0.0), max(to_s_ago, 0.0)
    if since <= until:
        return 0.0
    mean_life = half_life_s / math.log(2)
    return gpus * mean_life * (math.pow(0.5, until / half_life_s) - math.pow(0.5, since / half_life_s))


def index(amounts: Sequence[float]) -> float:
    """Jain's fairness index: 1 when all got the same, 1/n when one of n got everything."""
    squares = sum(amount * amount for amount in amounts)
    return 1.0 if not squares else sum(amounts) ** 2 / (len(amounts) * squares)
