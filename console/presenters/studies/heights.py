"""Places of dots and lines in the frame of a plot, as whole numbers."""

from __future__ import annotations

from collections.abc import Iterable

from console.presenters.metrics.charts import HEIGHT, WIDTH


def dot(x: int, y: int) -> str:
    """A stroke of no length with round ends."""
    return f"M{x} {y}h.1"


def dots(xs: Iterable[float], ys: Iterable[float]) -> str:
    """Many of them, by their shares of the width and of the height."""
    wide, bottom, high = WIDTH - 8, HEIGHT - 4, HEIGHT - 8
    return " ".join(
        [f"M{round(4 + wide * x)} {round(bottom - high * y)}h.1" for x, y in zip(xs, ys, strict=True)]
    )


def across(share: float) -> int:
    """Dots at the ends are not cut off."""
    return round(4 + (WIDTH - 8) * share)


def steps(x: int, shares: Iterable[float | None]) -> list[str]:
    """The points of a path at this x, each at its height; an empty text for a share that is missing."""
    points = [f"{x} {y}" for y in range(round(HEIGHT) + 1)]
    bottom, span = HEIGHT - 4, HEIGHT - 8
    return ["" if share is None else points[round(bottom - span * share)] for share in shares]


def height(share: float) -> int:
    return round(HEIGHT - 4 - (HEIGHT - 8) * share)


def share_of(value: float, low: float, high: float) -> float:
    # Halves first: the distance of two huge numbers is no number.
    return (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5


def shares_of(values: Iterable[float], low: float, high: float) -> list[float]:
    """The same for many values."""
    half, width = low / 2, high / 2 - low / 2
    return [(value / 2 - half) / width if width > 0 else 0.5 for value in values]


def y_of(value: float, low: float, high: float) -> int:
    return height(share_of(value, low, high))
