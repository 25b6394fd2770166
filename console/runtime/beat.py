"""Beat: Celery's scheduler by Trainyard's clock. A clock that is set back must not silence it for that long."""

from __future__ import annotations

from celery import beat

from agents.clock_keeper import ClockKeeper
from console.runtime.schema_watch import SchemaWatch

__all__ = ["Scheduler"]


class Scheduler(beat.Scheduler):
    def setup_schedule(self) -> None:
        ClockKeeper().start()
        SchemaWatch().start()
        super().setup_schedule()
