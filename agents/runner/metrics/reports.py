"""One report of a metric: its name and value are checked here, wherever it was read. Pure.

Programs write what they like: a name may be markup, a megabyte or a control character, a value anything.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

HYPERTUNE, OWN_FILE, TENSORBOARD, MLFLOW, WANDB = "hypertune", "file", "tensorboard", "mlflow", "wandb"
MAX_NAME, MAX_LINE, MAX_NUMBER = 200, 64 * 1024, 64
MAX_STEP = 1 << 53
STEPS = ("step", "global_step", "epoch")
TIMES = ("timestamp", "time", "wall_time")
# What cloudml-hypertune writes beside the metric.
_HYPERTUNE_FIELDS = frozenset({"timestamp", "trial", "global_step", "checkpoint_path"})
# Control characters, line separators, and what turns the direction of a text; halves of characters.
_UNREADABLE = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]+"
)


class Report(NamedTuple):
    """`step` None: it is counted. `at` None: it was reported when it was read. The value may be NaN or infinite."""

    source: str
    name: str
    step: int | None
    value: float
    at: float | None


def name_of(found: Any) -> str:
    """A name that can be shown; "" for none."""
    if not isinstance(found, str):
        return ""
    name = " ".join(_UNREADABLE.sub(" ", found[: MAX_NAME * 4]).split())
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def value_of(found: Any) -> float | None:
    """A number, or a text that is one."""
    if isinstance(found, bool) or not isinstance(found, (int, float, str)):
        return None
    if isinstance(found, str) and len(found) > MAX_NUMBER:
        return None
    try:
        return float(found)
    except OverflowError:
        return math.inf if isinstance(found, int) and found > 0 else -math.inf
    except ValueError:
        return None


def step_of(found: Any) -> int | None:
    """A whole number; other reports are counted."""
    number = value_of(found)
    if number is None or not abs(number) <= MAX_STEP or number != int(number):
        return None
    return int(number)


def time_of(found: Any) -> float | None:
    """Seconds since 1970. A number of milliseconds (JavaScript, MLflow) is read as such."""
    number = value_of(found)
    if number is None or not 0 < number < 1e14:
        return None
    return number / 1000 if number > 1e11 else number


def of_hypertune(line: bytes) -> List[Report]:
    """The report in one line of the file of cloudml-hypertune; none where the line is torn, or of somebody else."""
    found = _object(line)
    step, at = step_of(found.get("global_step")), time_of(found.get("timestamp"))
    rest = {name: value for name, value in found.items() if name not in _HYPERTUNE_FIELDS}
    return list(_reports(HYPERTUNE, rest, step, at))


def of_json(line: bytes) -> List[Report]:
    """The reports in one line of `$TRAINYARD_METRICS`: each number of the object, at its step."""
    found = _object(line)
    # An epoch with a point, even 1.0, is a share of the training: the Trainer of transformers counts in them.
    steps = [
        found.get(name) for name in STEPS if not (name == "epoch" and isinstance(found.get(name), float))
    ]
    step = next((step for step in map(step_of, steps) if step is not None), None)
    at = next((time_of(found[name]) for name in TIMES if name in found), None)
    rest = {
        name: value
        for name, value in found.items()
        if name not in STEPS + TIMES and (not isinstance(value, str) or _is_odd(value))
    }
    return list(_reports(OWN_FILE, rest, step, at))


def of_summary(data: bytes) -> List[Report]:
    """The final values of a run of W&B: its numbers at its last step. Names with `_` are its own."""
    found = _object(data)
    rest = {name: value for name, value in found.items() if not name.startswith("_")}
    return list(_reports(WANDB, rest, step_of(found.get("_step")), time_of(found.get("_timestamp"))))


def _is_odd(text: str) -> bool:
    """A number that JSON has no sign for."""
    return text.strip().lower().lstrip("+-") in ("nan", "inf", "infinity")


def _object(line: bytes) -> Dict[str, Any]:
    if len(line) > MAX_LINE:
        return {}
    try:
        found = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _reports(source: str, values: Dict[str, Any], step: int | None, at: float | None) -> Iterator[Report]:
    for key, found in values.items():
        name, value = name_of(key), value_of(found)
        if name and value is not None:
            yield Report(source, name, step, value, at)


def to_line(report: Report, step: int, at: float) -> bytes:
    """The report as a line of the journal: [source, name, step, value, at]. What is no number in JSON is a text."""
    value: Any = report.value
    if not math.isfinite(value):
        value = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    fields = [report.source, report.name, step, value, round(at, 3)]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8") + b"\n"


def whole_lines(data: bytes) -> Tuple[List[bytes], int]:
    """(the lines that end in these bytes, how many bytes they take). What is behind the last one is not whole yet."""
    end = data.rfind(b"\n") + 1
    return data[:end].splitlines(), end
