"""The lock of the scheduler: no two passes at once, and nothing is placed while somebody changes the floor."""

from __future__ import annotations

from datetime import UTC, datetime

from jobs.models import Tick

TICK = "schedule"
EPOCH = datetime.fromtimestamp(0, UTC)


def claim() -> Tick:
    """No pass runs while this lock is held."""
    rows = Tick.objects.select_for_update().filter(name=TICK)
    tick = rows.first()
    if tick is None:
        serial()
        tick = rows.get()
    return tick


def serial() -> int:
    """How many passes there have been."""
    return Tick.objects.get_or_create(name=TICK, defaults={"at": EPOCH})[0].serial
