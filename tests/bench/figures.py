"""Figures, and the table that shows them."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """One measured value beside its reference and its aim; `met` None: shown without an aim."""

    name: str
    ours: str
    reference: str = ""
    ratio: float | None = None
    aim: str = ""
    met: bool | None = None

    def as_row(self):
        return asdict(self)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def spread(values, unit="ms"):
    """'33 / 58 ms (n=50)': median and 99th percentile."""
    p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
    return f"{short(p50)} / {short(p99)} {unit} (n={len(values)})"


def short(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(figures):
    rows = [("what", "ours", "reference", "ratio", "aim", "")]
    for each in figures:
        ratio = f"{each.ratio:.2f}" if each.ratio is not None else ""
        met = {True: "met", False: "NOT MET", None: ""}[each.met]
        rows.append((each.name, each.ours, each.reference, ratio, each.aim, met))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "-|-".join("-" * width for width in widths))
    return "\n".join(lines)
