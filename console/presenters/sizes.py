"""Sizes in words."""

from __future__ import annotations


def mebibytes(value: int | None) -> str:
    """Write mebibytes as MiB or GiB."""
    if value is None:
        return "–"
    if value < 1024:
        return f"{value} MiB"
    return f"{value / 1024:.0f} GiB" if value >= 10240 else f"{value / 1024:.1f} GiB"


def rate(value: int) -> str:
    """Write bytes per second with three digits: 1.25 MB/s."""
    number, unit = float(value), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5 or unit == "GB":
            break
        number /= 1000
    return f"{number:.3g} {unit}/s" if number < 1000 else f"{number:.0f} {unit}/s"
