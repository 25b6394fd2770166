"""Trainyard's time: what the clocks show, and setting it right."""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta

from django.conf import settings

from agents import clock_keeper
from agents.infra import clock, refusals
from console.auth import housekeeping
from console.commands import CommandRefused, operator
from console.runtime import database_setup
from console.runtime.processes import up
from jobs.artifacts import expiry
from jobs.maintenance import set_clock


def show(args: argparse.Namespace) -> int:
    database_setup.prepare()
    clocks = _read()
    name = (
        "the database's clock" if clocks.database_has_one else "this machine's clock (the database has none)"
    )
    print(f"{_shown(clocks.trainyard)}\tTrainyard's time")
    print(f"{_shown(clocks.database)}\t{name}\t{_beside(clocks.ahead_s)}")
    if clocks.database_has_one:
        ahead_s = (clocks.trainyard - clocks.machine).total_seconds()
        print(f"{_shown(clocks.machine)}\tthis machine's clock\t{_beside(ahead_s)}")
    for jump in clock_keeper.recent_jumps(clocks.trainyard):
        print(f"{_shown(jump.at)}\t{clock_keeper.text_of(jump)}")
    if why := expiry.waits(clocks.trainyard):
        print(f"Nothing is deleted by its age at this moment. {why}")
    return 0


def set_right(args: argparse.Namespace) -> int:
    """Set Trainyard's time to the database's clock."""
    database_setup.prepare()
    try:
        if _read().ahead_s > 0:
            # Held until it is done, so that nobody starts Trainyard on this data directory meanwhile.
            with up.take_lock(settings.TRAINYARD.data / "up.lock"):
                step_s = set_clock.set_right(operator())
                housekeeping.bring_back(clock.now())
        else:
            step_s = set_clock.set_right(operator())
    except up.StartRefused as running:
        raise CommandRefused(f"The time can be set back only while nothing runs. {running}") from running
    except (refusals.Refused, refusals.Unavailable) as refused:
        raise CommandRefused(refused.message) from refused
    print(f"Trainyard's time was set {'forward' if step_s > 0 else 'back'} by {_length(step_s)}.")
    return 0


def _read() -> set_clock.Clocks:
    try:
        return set_clock.read()
    except refusals.Unavailable as refused:
        raise CommandRefused(refused.message) from refused


def _shown(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _beside(ahead_s: float) -> str:
    if abs(ahead_s) < clock_keeper.JUMP_S:
        return "right"
    return f"Trainyard's time is {_length(ahead_s)} {'ahead' if ahead_s > 0 else 'behind'}"


def _length(seconds: float) -> str:
    return str(timedelta(seconds=round(abs(seconds))))
