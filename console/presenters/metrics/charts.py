"""Lines of charts that the server draws as SVG, without script or style."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from console.presenters import sizes

WIDTH, HEIGHT = 600.0, 90.0

Point = tuple[datetime, float]


def path(line: Iterable[Point], start: datetime, end: datetime, top: float, gap: timedelta) -> str:
    """Return SVG path data. The line is broken where samples are missing for longer than `gap`."""
    span = (end - start).total_seconds() or 1.0
    steps: list[str] = []
    before: datetime | None = None
    for at, value in line:
        x = WIDTH * (at - start).total_seconds() / span
        y = HEIGHT - (HEIGHT - 2) * value / top - 1
        joined = before is not None and at - before <= max(gap, timedelta(seconds=span / 80))
        steps.append(f"{'L' if joined else 'M'}{x:.1f} {y:.1f}")
        before = at
    return " ".join(steps)


def gib(mb: int | None) -> str:
    if mb is None:
        return ""
    return f"{mb} MiB" if mb < 1024 else f"{sizes.decimal(mb / 1024)} GiB"
