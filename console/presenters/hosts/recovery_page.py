"""The page of recovery mode: how hosts and database differ, without what would make the page too long to use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from django.db.models import Model, QuerySet

from agents.models import Host, Recovery
from jobs.host_sync import recovery_mode
from jobs.models import Run, Stray
from jobs.rules.lifecycle.states import RunPhase

# Of each list so many rows are shown. A run that can still be stopped is always shown: the form chooses among them.
SHOWN = 100
Row = TypeVar("Row", bound=Model)


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
    sealed = recovery_mode.sealed()
    alive = tuple(sealed.exclude(phase=RunPhase.CLOSED))
    over = _some(sealed.filter(phase=RunPhase.CLOSED), max(SHOWN - len(alive), 0))
    return RecoveryPage(
        recovery=recovery_mode.current(),
        strays=Some((*alive, *over.rows), over.more),
        unsealed=_some(recovery_mode.unsealed()),
        missing=_some(recovery_mode.missing()),
        unheard=_some(recovery_mode.unheard()),
    )


def _some(rows: QuerySet[Row], shown: int = SHOWN) -> Some[Row]:
    """Read only what is shown, and count the rest."""
    found = tuple(rows[:shown])
    return Some(found, rows.count() - shown if len(found) == shown else 0)
