"""Sizes in words."""

from __future__ import annotations


def mebibytes(value: int | None) -> str:
    """Write mebibytes as MiB or GiB."""
    if value is None:
        return "–"
    if value < 1024:
        return f"{value} MiB"
    return f"{value / 1024:.0f} GiB" if value >= 10240 else f"{value / 1024:.1f} GiB"
