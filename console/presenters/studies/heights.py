"""Places of dots and lines in the frame of a plot, as whole numbers."""

from __future__ import annotations

from console.presenters.metrics.charts import HEIGHT, WIDTH


def dot(x: int, y: int) -> str:
    """A stroke of no length with round ends."""
    return f"M{x} {y}h.1"


def across(share: float) -> int:
    """Dots at the ends are not cut off."""
    return round(4 + (WIDTH - 8) * share)


def height(share: float) -> int:
    return round(HEIGHT - 4 - (HEIGHT - 8) * share)


def share_of(value: float, low: float, high: float) -> float:
    # Halves first: the distance of two huge numbers is no number.
    return (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5


def y_of(value: float, low: float, high: float) -> int:
    return height(share_of(value, low, high))
