"""Sizes and numbers in words, as the language of the page writes them."""

from __future__ import annotations

from django.utils.formats import get_format


def decimal(value: float, digits: int = 1) -> str:
    """Write a number with so many decimals: 1.5, or 1,5 in Portuguese."""
    return localized(f"{value:.{digits}f}")


def localized(number: str) -> str:
    """A number that is written out, with the decimal mark of the language."""
    return number.replace(".", get_format("DECIMAL_SEPARATOR"))


def mebibytes(value: int | None) -> str:
    """Write mebibytes as MiB or GiB."""
    if value is None:
        return "–"
    if value < 1024:
        return f"{value} MiB"
    return f"{decimal(value / 1024, 0 if value >= 10240 else 1)} GiB"


def rate(value: int) -> str:
    """Write bytes per second with three digits: 1.25 MB/s."""
    number, unit = float(value), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5 or unit == "GB":
            break
        number /= 1000
    return f"{localized(f'{number:.3g}')} {unit}/s" if number < 1000 else f"{number:.0f} {unit}/s"
