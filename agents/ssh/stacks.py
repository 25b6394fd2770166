"""Stacks of runs: asks one host where the Python programs of its runs stand, over a connection of its own.

The host is not trusted: what it sends is bounded in size and in time, and every text is made readable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import paramiko

from agents.infra import untrusted
from agents.infra.text import clean_text
from agents.infra.texts import said
from agents.runner.shells.frames import json_line
from agents.runner.shells.stacks import MAX_BYTES, MAX_FRAMES, MAX_PROCESSES, MAX_TEXT, MAX_THREADS
from agents.runner.wire import Message, WireError, finite_float, refuse_constant
from agents.ssh import install_runner, tools
from agents.ssh.deadlines import closing_at
from agents.ssh.dial import Connection, DialError, dial
from agents.ssh.modes import RunnerMissing, start_mode
from agents.ssh.sockets import CONNECTION_ERRORS
from agents.ssh.targets import Target

LOOKUP_S = 5.0
NO_ANSWER = said("the host does not answer")
# Why nobody may look into a run, by the word of the runner.
REASONS = {
    "not_running": said("it is not running"),
    "rebooted": said("its run ended with a reboot of the host"),
    "damaged": said("the order of its run is damaged on the host"),
    "no_shells": said("its run does not allow shells"),
    "no_py_spy": said("there is no py-spy for the processors of its host"),
}
# Beside what is told of its processes.
_ROOM = 4096


class NoStacks(DialError):
    """The host was reached, and tells no stacks. The message has its reason."""


@dataclass(frozen=True, slots=True)
class Thread:
    """`name`: empty where its program has named none. `frames`: the innermost first."""

    name: str
    state: str
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProcessStacks:
    """`problem`: empty, `denied`, `slow`, or words of py-spy. `left_out`: threads that were too many."""

    pid: int
    command: str
    threads: tuple[Thread, ...]
    left_out: int
    problem: str


@dataclass(frozen=True, slots=True)
class RunStacks:
    """`error`: why nobody may look into the run. `left_out`: processes that were too many."""

    error: str
    in_container: bool
    processes: tuple[ProcessStacks, ...]
    left_out: int
    ptrace_scope: int


def look(
    target: Target, key: paramiko.PKey, deployment: str, runs: Sequence[str], until: float, room: int
) -> dict[str, RunStacks]:
    """The stacks of these runs of the host. `until`: of the monotonic clock. `room`: for what is told of one run, in
    bytes; no run has more than MAX_BYTES. Raises DialError."""
    request = {"deployment": deployment, "runs": list(runs), "tools": tools.offered(), "room": room}
    most = len(runs) * (min(room, MAX_BYTES) + _ROOM) + _ROOM
    connection = dial(target, key, lookup_s=LOOKUP_S, until=until)
    try:
        with closing_at(connection, until):
            document = _document(connection, request, most)
    except (WireError, ValueError, RecursionError, *CONNECTION_ERRORS) as problem:
        raise NoStacks(said("the host sent no stacks: {problem}", problem=problem)) from problem
    finally:
        connection.close()
    found = untrusted.mapping(document.get("runs"))
    scope = untrusted.whole_number(document.get("ptrace_scope"), 0, 3) or 0
    return {run: read_run(untrusted.mapping(found[run]), scope) for run in runs if run in found}


def _document(connection: Connection, request: Message, most: int) -> Mapping[str, Any]:
    """What the host answers. It gets what it is without: the runner, then py-spy."""
    for _ in range(3):
        try:
            channel, answer, rest = start_mode(connection, "stacks", json_line(request))
        except RunnerMissing:
            install_runner.put_runner(connection)
            continue
        if isinstance(machine := answer.get("missing"), str):
            if not tools.put(connection, clean_text(machine, 20)):
                raise NoStacks(said("py-spy could not be put on the host"))
            continue
        if answer.get("ok") is not True:
            raise NoStacks(clean_text(answer.get("error") or NO_ANSWER, 300))
        size = untrusted.whole_number(answer.get("size"), 2, most)
        if size is None:
            raise WireError("more than was asked for")
        return untrusted.mapping(_decoded(_whole(channel, rest, size)))
    raise NoStacks(NO_ANSWER)


def _whole(channel: paramiko.Channel, data: bytes, size: int) -> bytes:
    parts, left = [data[:size]], size - len(data)
    while left > 0:
        part = channel.recv(min(left, 256 * 1024))
        if not part:
            raise WireError("the answer ended too early")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _decoded(data: bytes) -> object:
    return json.loads(data, parse_constant=refuse_constant, parse_float=finite_float)


def read_run(found: Mapping[str, Any], scope: int) -> RunStacks:
    error, reason = found.get("error"), found.get("reason")
    words = clean_text(error, 300) if error is not None else ""
    return RunStacks(
        error=REASONS.get(reason, words) if isinstance(reason, str) else words,
        in_container=found.get("container") is True,
        processes=tuple(_process(each) for each in untrusted.mappings(found.get("processes"), MAX_PROCESSES)),
        left_out=untrusted.whole_number(found.get("left_out"), 0, 1 << 31) or 0,
        ptrace_scope=scope,
    )


def _process(found: Mapping[str, Any]) -> ProcessStacks:
    threads = found.get("threads")
    listed = threads[:MAX_THREADS] if isinstance(threads, list) else []
    return ProcessStacks(
        pid=untrusted.whole_number(found.get("pid"), 1, 1 << 31) or 0,
        command=_line(found.get("command") or ""),
        threads=tuple(_thread(each) for each in listed if isinstance(each, list) and len(each) == 3),
        left_out=untrusted.whole_number(found.get("left_out"), 0, 1 << 31) or 0,
        problem=_line(found.get("problem") or ""),
    )


def _thread(found: Sequence[object]) -> Thread:
    name, state, frames = found
    texts = frames[:MAX_FRAMES] if isinstance(frames, list) else []
    return Thread(
        name=_line(name or ""),
        state="active" if state == "active" else "idle",
        frames=tuple(_line(each) for each in texts),
    )


def _line(text: object) -> str:
    """A frame that had several lines would look like several frames."""
    return clean_text(" ".join(str(text).split()), MAX_TEXT)
