"""Moments as text, for the reasons why a job waits: `14:10 UTC` today, `28 Nov 14:10 UTC` later."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from agents.infra.texts import moment

MINUTE_S = 60


def whole_minute(at: float) -> float:
    """The next full minute: what people read must not change with every second."""
    return float(math.ceil(at / MINUTE_S) * MINUTE_S)


def moment_text(at: float, now: float) -> str:
    then, today = (datetime.fromtimestamp(each, UTC) for each in (whole_minute(at), now))
    if then.date() == today.date():
        return moment(then, f"{then:%H:%M} UTC")
    year = f" {then.year}" if then.year != today.year else ""
    return moment(then, f"{then.day} {then:%b}{year} {then:%H:%M} UTC")
