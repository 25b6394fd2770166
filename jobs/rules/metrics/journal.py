"""The journal of what a program reported, as its host sends it: one line for each report. Pure.

A host may be hostile: names and values are checked again here, whatever its runner has checked.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

from jobs.rules.metrics.names import clean_name

SOURCES = ("hypertune", "file", "tensorboard", "mlflow", "wandb")
# What the console itself reads in logs comes from no host.
LOG = "log"
ODD = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
MAX_STEP = 1 << 53
MAX_TIME = 1e11


@dataclass(frozen=True, slots=True)
class Report:
    """One report. The value may be NaN or infinite. `at` is in seconds, by the clock of the host."""

    source: str
    name: str
    step: int
    value: float
    at: float


def chained(before: str, lines: Iterable[bytes]) -> str:
    """The hash of these lines and of all before them, as the runner makes it."""
    for line in lines:
        before = hashlib.sha256(before.encode() + line).hexdigest()
    return before


def parse(line: bytes) -> Report | None:
    """The report in a line; None where it is none that a runner of ours writes."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or len(found) != 5:
        return None
    source, name, step, value, at = found
    name, number = clean_name(name), value_of(value)
    if source not in SOURCES or not name or number is None:
        return None
    if type(step) is not int or abs(step) > MAX_STEP or type(at) not in (int, float) or not 0 < at < MAX_TIME:
        return None
    return Report(source, name, step, number, float(at))


def value_of(found: object) -> float | None:
    if isinstance(found, str):
        return ODD.get(found)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        return float(found)
    except OverflowError:
        return math.inf if found > 0 else -math.inf


def odd_word(value: float) -> str:
    """The word for what is no number; "" for a number."""
    return "" if math.isfinite(value) else next(word for word in ODD if repr(ODD[word]) == repr(value))
