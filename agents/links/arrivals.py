"""Turn the messages of a host into arrivals. Pure.

A host may be hostile: the type and the size of each value are checked before it is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agents.infra import untrusted
from agents.infra.text import clean_text
from agents.links.control_plane import (
    Arrival,
    Fact,
    Forgotten,
    Frame,
    Gap,
    LogEnd,
    MetricsEnd,
    MetricsPiece,
    PreparationName,
    PreparationReport,
    RecordingEnd,
    RecordingPiece,
    Sample,
)
from agents.runner.wire import Message, WireError

RUN_ID = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,80}")
SHELL = re.compile(r"[0-9a-f]{32}")
KIND = re.compile(r"[a-z]{1,20}")
PREPARATION_STATES = frozenset({"WORKING", "READY", "FAILED", "LOST"})
MAX_TAIL = 8000
DIGEST = re.compile(r"[0-9a-f]{64}|")
MAX_RAW = 1024 * 1024
MAX_MARKS = 8192
MAX_OFFSET = 1 << 60
MAX_PHASE = 16
MAX_CORES = 100_000.0
MAX_MB = (1 << 31) - 1
MAX_GPUS = 64
MAX_WATTS, MAX_CELSIUS = 100_000, 1_000

ARRIVAL_KINDS = frozenset(
    {"fact", "inventory", "log", "gap", "log_end", "forgotten", "sample", "cast", "cast_end"}
    | {"metrics", "metrics_end"}
)


def arrivals(message: Message, payload: bytes) -> list[Arrival]:
    """The arrivals in one message of a type in `ARRIVAL_KINDS`. Raises WireError for what no runner of ours sends."""
    kind = message["t"]
    if kind == "inventory":
        return [_fact(document) for document in _list(message, "runs")]
    if kind == "fact":
        return [_fact({key: value for key, value in message.items() if key != "t"})]
    run = _run_id(message)
    if kind == "log":
        return [Arrival(run, _frame(message, payload))]
    if kind == "gap":
        start, end = _range(message)
        return [Arrival(run, Gap(start, end, clean_text(message.get("reason", ""), 200)))]
    if kind == "log_end":
        return [Arrival(run, LogEnd(_offset(message, "size"), clean_text(message.get("digest") or "", 100)))]
    if kind == "sample":
        return [Arrival(run, _sample(message))]
    if kind == "cast":
        return [Arrival(run, _recording_piece(message, payload))]
    if kind == "cast_end":
        return [Arrival(run, _recording_end(message))]
    if kind == "metrics":
        return [Arrival(run, MetricsPiece(*_payload_range(message, payload), payload))]
    if kind == "metrics_end":
        return [Arrival(run, MetricsEnd(_offset(message, "size"), _digest(message)))]
    return [Arrival(run, Forgotten())]


def preparation_report(message: Message) -> PreparationReport:
    """How far a host is with a preparation. Raises WireError for what no runner of ours sends."""
    kind, key, state = message.get("kind"), message.get("key"), message.get("state")
    asked = untrusted.whole_number(message.get("asked") or 0, 0, MAX_MB)
    if not isinstance(kind, str) or not KIND.fullmatch(kind) or not isinstance(key, str):
        raise WireError("a preparation without a kind or key")
    if not RUN_ID.fullmatch(key) or asked is None or state not in PREPARATION_STATES:
        raise WireError(f"a preparation {key[:40]!r} that is {str(state)[:20]!r}")
    texts = untrusted.mapping(message.get("result")).items()
    return PreparationReport(
        PreparationName(kind, key, asked),
        str(state),
        done=untrusted.whole_number(message.get("done"), 0, MAX_OFFSET) or 0,
        total=untrusted.whole_number(message.get("total"), 0, MAX_OFFSET),
        unit=clean_text(message.get("unit") or "", 20),
        message=clean_text(message.get("message") or "", 1000),
        tail=untrusted.text(message.get("tail"), MAX_TAIL),
        fault="user" if message.get("fault") == "user" else "host",
        result={clean_text(name, 40): clean_text(value, 500) for name, value in list(texts)[:20]},
    )


def memory_size(arrival: Arrival) -> int:
    """Roughly how many bytes an arrival takes in memory: a line of 64 KB can hold twenty thousand empty objects."""
    what = arrival.what
    weight = 500 + (len(what.data) if isinstance(what, Frame | RecordingPiece | MetricsPiece) else 0)
    left: list[Any] = [what.document] if isinstance(what, Fact) else []
    while left:
        value = left.pop()
        weight += 100
        if isinstance(value, Mapping):
            left += value.keys()
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str):
            weight += len(value)
    return weight


def _fact(document: Any) -> Arrival:
    phase = document.get("phase") if isinstance(document, dict) else None
    if not isinstance(phase, str) or len(phase) > MAX_PHASE:
        raise WireError("a fact without a phase")
    return Arrival(_run_id(document), Fact(document))


def _payload_range(message: Message, payload: bytes) -> tuple[int, int, bool]:
    """(start, end, whether it is packed) of the bytes behind a frame."""
    start, end = _range(message)
    z = bool(message.get("z"))
    if (
        end - start > MAX_RAW
        or not payload
        or len(payload) > MAX_RAW
        or (not z and len(payload) != end - start)
    ):
        raise WireError(f"a {message['t']} frame of {end - start} bytes in {len(payload)}")
    return start, end, z


def _recording_piece(message: Message, payload: bytes) -> RecordingPiece:
    return RecordingPiece(_shell(message), *_payload_range(message, payload), payload)


def _recording_end(message: Message) -> RecordingEnd:
    return RecordingEnd(_shell(message), _offset(message, "size"), _digest(message))


def _digest(message: Message) -> str:
    digest = message.get("digest")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise WireError(f"a {message['t']} frame without a digest")
    return digest


def _shell(message: Message) -> str:
    shell = message.get("shell")
    if not isinstance(shell, str) or not SHELL.fullmatch(shell):
        raise WireError(f"a shell named {str(shell)[:40]!r}")
    return shell


def _frame(message: Message, payload: bytes) -> Frame:
    start, end, z = _payload_range(message, payload)
    marks = _list(message, "at") if "at" in message else []
    if len(marks) > MAX_MARKS:
        raise WireError(f"a log frame with {len(marks)} time marks")
    return Frame(start, end, z, payload, tuple(_time_mark(mark) for mark in marks))


def _sample(message: Message) -> Sample:
    cpu, gpus = message.get("cpu"), message.get("gpus")
    if not isinstance(cpu, int | float) or not isinstance(gpus, dict) or len(gpus) > MAX_GPUS:
        raise WireError("a sample that is malformed")
    return Sample(
        cpu=min(max(float(cpu), 0.0), MAX_CORES),
        memory_mb=untrusted.whole_number(message.get("rss_mb"), 0, MAX_MB),
        gpus={clean_text(uuid, 80): _gpu_load(load) for uuid, load in gpus.items()},
        disk_free_mb=untrusted.whole_number(message.get("disk_free_mb"), 0, MAX_OFFSET),
        connected=connected if isinstance(connected := message.get("connected"), bool) else None,
        power=_of_gpus(message.get("power"), MAX_WATTS),
        temperature=_of_gpus(message.get("temp"), MAX_CELSIUS),
        network=rates(message.get("net")),
        disks=rates(message.get("io")),
    )


def _of_gpus(values: Any, maximum: int) -> dict[str, int]:
    """A number for each GPU. Older runners report none, and a card need not report it."""
    pairs = list(untrusted.mapping(values).items())[:MAX_GPUS]
    found = {clean_text(uuid, 80): untrusted.number(value, maximum) for uuid, value in pairs}
    return {uuid: round(value) for uuid, value in found.items() if value is not None}


def rates(values: Any) -> tuple[int | None, int | None]:
    """Two numbers of bytes per second; of a runner that reports none, (None, None)."""
    if not isinstance(values, list) or len(values) != 2:
        return None, None
    return untrusted.whole_number(values[0], 0, MAX_OFFSET), untrusted.whole_number(values[1], 0, MAX_OFFSET)


def _gpu_load(load: Any) -> tuple[int | None, int | None]:
    if not isinstance(load, list) or len(load) != 2:
        raise WireError("a GPU's load that is malformed")
    return untrusted.whole_number(load[0], 0, 100), untrusted.whole_number(load[1], 0, MAX_MB)


def _time_mark(mark: Any) -> tuple[int, float]:
    if (
        not isinstance(mark, list)
        or len(mark) != 2
        or type(mark[0]) is not int
        or type(mark[1]) not in (int, float)
    ):
        raise WireError("a time mark that is not [offset, seconds]")
    return mark[0], float(mark[1])


def _run_id(message: Mapping[str, Any]) -> str:
    run = message.get("run")
    if not isinstance(run, str) or not RUN_ID.fullmatch(run):
        raise WireError(f"a run named {str(run)[:40]!r}")
    return run


def _range(message: Message) -> tuple[int, int]:
    start, end = _offset(message, "from"), _offset(message, "to")
    if not start < end:
        raise WireError(f"a range from {start} to {end}")
    return start, end


def _offset(message: Message, name: str) -> int:
    value = untrusted.whole_number(message.get(name), 0, MAX_OFFSET)
    if value is None:
        raise WireError(f"{name} is {str(message.get(name))[:40]!r}")
    return value


def _list(message: Message, name: str) -> list[Any]:
    value = message.get(name)
    if not isinstance(value, list):
        raise WireError(f"{name} is not a list")
    return value
