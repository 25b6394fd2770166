"""Whether ages may be believed. While they may not, nothing is deleted because it is old: it could not come back.

Trainyard's time goes on whatever is done to clocks (clock_keeper.py). But a machine that is started alone takes it from
a clock, and that may be wrong by years. Three things raise doubts: nobody kept the time for a while, an admin has set
it, or other clocks show another time. The first two are over after a day, in which admins can see it; the last one
lasts as long as it is true.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from statistics import median

from agents.infra import clock
from agents.infra.texts import said
from agents.models import ClockJump, Host, HostStatus, MachineClock

# What the line of a time that an admin has set names.
OWN = "Trainyard's time"
DOUBT = timedelta(days=1)
# A restart takes no longer. Ages of days are not changed by it.
RESTART = timedelta(hours=1)
APART_S = 3600.0


def why(now: datetime) -> str:
    """Why nothing may be deleted by its age now, as a sentence; empty where it may."""
    rows = list(MachineClock.objects.order_by("-noted_at"))
    if not rows or not clock.is_known():
        return said("Trainyard's time is not known yet.")
    return _apart(rows[0]) or _hosts_apart() or _set_lately(now) or _taken_anew(rows, now)


def _apart(newest: MachineClock) -> str:
    if abs(newest.database_s) <= APART_S:
        return ""
    return said(
        "Trainyard's time differs by {length} from the clock from which it was taken. An admin sets it right "
        "(trainyard clock set-right).",
        length=_length(newest.database_s),
    )


def _hosts_apart() -> str:
    """Most hosts have their time from elsewhere. One that is wrong by itself is not believed."""
    rows = Host.objects.filter(status=HostStatus.UP)
    offsets = [each for each in rows.values_list("clock_offset_s", flat=True) if each is not None]
    apart_s = median(offsets) if offsets else 0.0
    if abs(apart_s) <= APART_S:
        return ""
    return said(
        "Trainyard's time differs by {length} from the clocks of its hosts. If it is wrong, put the clock of the "
        "console's machine or database right; then an admin sets Trainyard's time (trainyard clock set-right).",
        length=_length(apart_s),
    )


def _set_lately(now: datetime) -> str:
    jump = ClockJump.objects.filter(clock=OWN, at__gt=now - DOUBT).first()
    return said("Trainyard's time was set at {at}.", at=_shown(jump.at)) if jump else ""


def _taken_anew(rows: list[MachineClock], now: datetime) -> str:
    """A doubt stays for its day, however often machines are started meanwhile: each start is looked at."""
    return next(filter(None, (_start_in_doubt(row.unsure_since, rows, now) for row in rows)), "")


def _start_in_doubt(since: datetime, rows: list[MachineClock], now: datetime) -> str:
    before = [row.noted_at for row in rows if row.noted_at < since]
    if now - since >= DOUBT or not before or since - max(before) <= RESTART:
        return ""
    return said(
        "Nobody kept Trainyard's time for {length} before {at}. It was taken from a clock then, which may be wrong: it "
        "is believed after a day.",
        length=_length((since - max(before)).total_seconds()),
        at=_shown(since),
    )


def _length(seconds: float) -> str:
    return str(timedelta(seconds=round(abs(seconds))))


def _shown(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
