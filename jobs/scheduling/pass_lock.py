"""The lock of the scheduling pass: no two passes at once, and nothing is placed while a host is closed or removed."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db.models import F

from agents.infra.sql import Parameter, PartialModel, SelectStatement, UpdateStatement
from jobs.models import Tick

TICK = "schedule"
EPOCH = datetime.fromtimestamp(0, UTC)

_TICK = PartialModel(Tick)
# What `lock_pass` asks the database, for `read_ahead`: what is read in the same trip behind it is read under the lock.
LOCK = SelectStatement(
    lambda: Tick.objects.select_for_update().filter(name=TICK).order_by().values_list(*_TICK.names)
)
_count = UpdateStatement(lambda: Tick.objects.filter(pk=Parameter("tick")), "at", serial=F("serial") + 1)


def lock_pass() -> Tick:
    """Lock the tick "schedule" until the transaction ends. No pass runs meanwhile."""
    rows = LOCK()
    if not rows:
        serial()
        rows = LOCK()
    return _TICK.build(rows[0])


def count_pass(tick: Tick, now: datetime) -> None:
    """Count one more pass."""
    _count(tick=tick.pk, at=now)


def serial() -> int:
    """How many passes have been made."""
    return Tick.objects.get_or_create(name=TICK, defaults={"at": EPOCH})[0].serial
