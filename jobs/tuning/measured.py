"""What the programs of trials reported, as measurements: from the rows of reported metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jobs.models import Job
from jobs.rules.tuning.trials import Measurement


@dataclass(frozen=True, slots=True)
class Measured:
    """`measurements` by step, then by time. `names` of all metrics that were reported. `whole`: nothing is missing."""

    measurements: tuple[Measurement, ...] = ()
    names: tuple[str, ...] = ()
    whole: bool = True


NOTHING = Measured()


def of_jobs(jobs: Iterable[Job]) -> Mapping[int, Measured]:
    return {}
