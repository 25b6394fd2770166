"""Whether ages may be believed. While they may not, nothing is deleted because it is old: it could not come back.

Trainyard's time goes on whatever is done to clocks (clock_keeper.py). But a machine that is started alone takes it from
a clock, and that may be wrong by years. Three things raise doubts: nobody kept the time for a while, an admin has set
it, or other clocks show another time. The first two are over after a day, in which admins can see it; the last one
lasts as long as it is true, so admins are told on every page.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from statistics import median_low

from django.db.models import Count, Q

from agents.infra import clock
from agents.infra.shared_answers import SharedAnswers
from agents.infra.texts import said
from agents.models import ClockJump, Host, HostStatus, MachineClock

# What the line of a time that an admin has set names.
OWN = "Trainyard's time"
DOUBT = timedelta(days=1)
# A restart takes no longer. Ages of days are not changed by it.
RESTART = timedelta(hours=1)
APART_S = 3600.0
_told = SharedAnswers[None, str](timedelta(seconds=10), 1)


def why(now: datetime) -> str:
    """Why nothing may be deleted by its age now, as a sentence; empty where it may."""
    rows = _rows()
    return _doubt(rows, now) if rows else said("Trainyard's time is not known yet.")


def told(now: datetime) -> str:
    """The same for pages, some seconds old. Empty while the time is not known, right after a start: that ends soon."""
    return _told.get(None, lambda: _doubt(rows, now) if (rows := _rows()) else "")


def _rows() -> list[MachineClock]:
    """The newest first; empty while the time is not known."""
    return list(MachineClock.objects.order_by("-noted_at")) if clock.is_known() else []


def _doubt(rows: list[MachineClock], now: datetime) -> str:
    return _apart(rows[0]) or _hosts_apart() or _set_lately(now) or _taken_anew(rows, now)


def _apart(newest: MachineClock) -> str:
    if abs(newest.database_s) <= APART_S:
        return ""
    return said(
        "Trainyard's time differs by {length} from the clock of the console's database or machine, and one of them is "
        "wrong. If it is that clock, put it right. If it is Trainyard's time, an admin sets it by that clock "
        "(trainyard clock set-right).",
        length=_length(newest.database_s),
    )


def _hosts_apart() -> str:
    """Hosts have their time from elsewhere. They are believed where more than half of them differ."""
    known = Host.objects.filter(status=HostStatus.UP, clock_offset_s__isnull=False)
    apart = Q(clock_offset_s__gt=APART_S) | Q(clock_offset_s__lt=-APART_S)
    # Counted first, because every page asks: with a thousand hosts, none of the rows is read.
    counted = known.aggregate(all=Count("pk"), apart=Count("pk", filter=apart))
    if 2 * counted["apart"] <= counted["all"]:
        return ""
    rows = known.values_list("clock_offset_s", flat=True)
    apart_s = median_low([abs(each) for each in rows if each is not None] or [0.0])
    if apart_s <= APART_S:
        return ""
    return said(
        "Trainyard's time differs by {length} from the clocks of most of its hosts. If theirs are wrong, put them "
        "right. If it is Trainyard's, put the clock of the console's machine or database right; then an admin sets "
        "Trainyard's time (trainyard clock set-right).",
        length=_length(apart_s),
    )


def _set_lately(now: datetime) -> str:
    # One that lies ahead is of a time that was put back since: it would stay ahead for years.
    jump = ClockJump.objects.filter(clock=OWN, at__gt=now - DOUBT, at__lte=now).first()
    return said("Trainyard's time was set at {at}.", at=_shown(jump.at)) if jump else ""


def _taken_anew(rows: list[MachineClock], now: datetime) -> str:
    """A doubt stays for its day, however often machines are started meanwhile: each start is looked at."""
    return next(filter(None, (_start_in_doubt(row.unsure_since, rows, now) for row in rows)), "")


def _start_in_doubt(since: datetime, rows: list[MachineClock], now: datetime) -> str:
    before = [row.noted_at for row in rows if row.noted_at < since]
    if not since <= now < since + DOUBT or not before or since - max(before) <= RESTART:
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
