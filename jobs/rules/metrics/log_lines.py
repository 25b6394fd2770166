"""Metrics in the lines that programs print. Pure.

Four forms are read: a line that is a JSON object, a dict as Python shows it (the Trainer of transformers),
`name: value - name: value` (Keras), and `name=value`. A log is full of such things, so only names that were asked for
count.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from jobs.rules.metrics.names import clean_name

# The variable of a job that says which: names with commas between them.
ASKED = "TRAINYARD_LOG_METRICS"
MAX_ASKED = 50
STEPS = ("step", "global_step", "epoch")
MAX_LINE, MAX_NUMBER = 20_000, 60
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|NaN|inf(?:inity)?|Infinity)"
# A full stop may follow the number, as in `final loss: 0.25.`
_PAIR = re.compile(rf"(?<![\w./-])([A-Za-z_][\w./-]{{0,199}})\s*(?:=|:)\s*({_NUMBER})(?!\w|\.\S)")
# Python writes these without quotes, and no literal has them.
_BARE = re.compile(r"(?<=[\s:,\[])(nan|inf|-inf)(?=[\s,}\]])")


def names_asked(env: object) -> tuple[str, ...]:
    """The names that the environment of a replica asks for."""
    text = env.get(ASKED) if isinstance(env, Mapping) else None
    found = [clean_name(part) for part in text.split(",")] if isinstance(text, str) else []
    return tuple(dict.fromkeys(name for name in found if name))[:MAX_ASKED]


def values_in(line: str, names: Collection[str]) -> tuple[dict[str, float], int | None]:
    """(the value of each of these names in the line, of several the last; the step, if the line says one)."""
    if len(line) > MAX_LINE or not names:
        return {}, None
    line = line.strip()
    found = _document(line) if line.startswith("{") and line.endswith("}") else None
    pairs: Mapping[str, Any] = found if found is not None else dict(_PAIR.findall(line))
    values = {name: number for name in names if (number := _number(pairs.get(name))) is not None}
    step = next((number for name in STEPS if (number := _step(name, pairs.get(name))) is not None), None)
    return values, step


def _step(name: str, found: Any) -> int | None:
    """The step that a line says. What is no whole number is none: those reports are counted.

    Nor is an epoch with a point, even 1.0: the Trainer of transformers shows the share of the training that is done.
    """
    number = _number(found)
    if number is None or abs(number) >= 1 << 53 or not number.is_integer():
        return None
    return None if name == "epoch" and _has_point(found) else int(number)


def _has_point(found: Any) -> bool:
    return isinstance(found, float) or (isinstance(found, str) and not found.lstrip("+-").isdigit())


def _document(line: str) -> Mapping[str, Any] | None:
    for read in (json.loads, _literal):
        try:
            found = read(line)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
        return (
            {key: value for key, value in found.items() if isinstance(key, str)}
            if isinstance(found, dict)
            else None
        )
    return None


def _literal(line: str) -> Any:
    return ast.literal_eval(_BARE.sub(r"'\1'", line))


def _number(found: Any) -> float | None:
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        return None
    # No int is made a text: Python refuses that for thousands of digits.
    if isinstance(found, str) and len(found) > MAX_NUMBER:
        return None
    try:
        return float(found)
    except (ValueError, OverflowError):
        return None
