"""The page of recovery mode: how hosts and database differ, without what would make the page too long to use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from agents.models import Host, Recovery
from jobs.host_sync import recovery_mode
from jobs.models import Run, Stray
from jobs.rules.lifecycle.states import RunPhase

# Of each list so many rows are shown. A run that can still be stopped is always shown: the form chooses among them.
SHOWN = 100
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Some(Generic[Row]):
    """The rows that are shown, and how many more there are."""

    rows: tuple[Row, ...]
    more: int


@dataclass(frozen=True, slots=True)
class RecoveryPage:
    recovery: Recovery | None
    strays: Some[Stray]
    unsealed: Some[Stray]
    missing: Some[Run]
    unheard: Some[Host]


def page() -> RecoveryPage:
    found = recovery_mode.differences()
    alive = [stray for stray in found.strays if stray.phase != RunPhase.CLOSED]
    over = [stray for stray in found.strays if stray.phase == RunPhase.CLOSED]
    return RecoveryPage(
        recovery=found.recovery,
        strays=_some((*alive, *over), max(SHOWN, len(alive))),
        unsealed=_some(found.unsealed),
        missing=_some(found.missing),
        unheard=_some(found.unheard),
    )


def _some(rows: Sequence[Row], shown: int = SHOWN) -> Some[Row]:
    return Some(tuple(rows[:shown]), max(len(rows) - shown, 0))
