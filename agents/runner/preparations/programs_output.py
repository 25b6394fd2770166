"""Run a program for a preparation: its output becomes the report's, line by line, and its progress the report's.

Engines draw progress bars only on a terminal, so they get one. Of what they draw, the bars are read as numbers of bytes
and everything else is kept as text.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from typing import Dict, List, Set, Tuple

from agents.runner.linux import die_with_parent
from agents.runner.preparations.long_programs import end_group
from agents.runner.preparations.pull_guard import Guard
from agents.runner.preparations.report import HOST, Failed, Report

# A program that has said nothing for so long hangs.
SILENT_S = 900.0
# How often the guard looks, and how long a program that it ends may take to throw away what it has begun.
LOOK_S, END_S = 1.0, 5.0
# Of its output, the end is kept: a registry may send anything.
MAX_KEPT, MAX_SHOWN = 64 << 10, 10_000
# The exit status of a program that was given up, as `timeout` has it.
NO_ANSWER = 124
# Wide enough that no bar is cut, and no line wrapped.
ROWS, COLUMNS = 50, 400
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|[()][A-Za-z0-9]|[=>78])")
_BAR = re.compile(r"([0-9a-f]{12})[^\r\n]*?([\d.]+)\s?([kKMGT]?i?B)\s?/\s?([\d.]+)\s?([kKMGT]?i?B)")
# Apptainer names no part; it is known by its size.
_NAMELESS = re.compile(r"()([\d.]+)\s?([kKMGT]?i?B)\s?/\s?([\d.]+)\s?([kKMGT]?i?B) \[")
# A part that is complete: a line of podman, a word of docker.
_DONE = re.compile(r"([0-9a-f]{12})[^\r\n]*?(?:\bdone\b|\bDownload complete\b|\bPull complete\b)")
_UNITS = {"B": 1, "k": 1000, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
_BINARY = {"K": 1 << 10, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Bars:
    """The progress of all parts of an image, as an engine draws it."""

    def __init__(self) -> None:
        self.parts: Dict[str, Tuple[int, int]] = {}

    def read(self, line: str) -> bool:
        """Whether the line was a bar."""
        found = _BAR.search(line) or _NAMELESS.match(line)
        if found is not None:
            name, done, unit, total, of = found.groups()
            self.parts[name or total + of] = (_bytes(done, unit), _bytes(total, of))
        finished = _DONE.search(line)
        if finished is not None and finished.group(1) in self.parts:
            total_bytes = self.parts[finished.group(1)][1]
            self.parts[finished.group(1)] = (total_bytes, total_bytes)
        return found is not None or finished is not None

    def sums(self) -> Tuple[int, int]:
        return sum(done for done, _ in self.parts.values()), sum(total for _, total in self.parts.values())


def _bytes(number: str, unit: str) -> int:
    factors = _BINARY if "i" in unit else _UNITS
    try:
        return int(float(number) * factors.get(unit[0], 1))
    except ValueError:
        return 0


def run_on_terminal(
    command: List[str], env: Dict[str, str], report: Report, guard: Guard, silent_s: float = SILENT_S
) -> Tuple[int, str]:
    """(exit status, the end of its output without bars). Raises Failed if it hangs, cannot be started, or the guard has
    stopped it."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=env,
            start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
    except OSError as error:
        os.close(master)
        raise Failed(HOST, "%s cannot be started: %s" % (command[0], error.strerror)) from None
    finally:
        os.close(slave)
    try:
        text = _follow(master, report, guard, silent_s)
    except Failed:
        _end(process)
        raise
    finally:
        os.close(master)
    return process.wait(), text


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all its children: podman's client without root is one of them."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    end_group(process)


def _follow(master: int, report: Report, guard: Guard, silent_s: float) -> str:
    bars, kept, rest = Bars(), "", ""
    shown: Set[str] = set()
    until, look_at = time.monotonic() + silent_s, time.monotonic() + LOOK_S
    while True:
        if time.monotonic() >= look_at:
            guard.look()
            look_at = time.monotonic() + LOOK_S
        if not select.select([master], [], [], max(0.0, min(until, look_at) - time.monotonic()))[0]:
            if time.monotonic() >= until:
                raise Failed(HOST, "it has said nothing for %g s" % silent_s)
            continue
        try:
            data = os.read(master, 65536)
        except OSError:  # the program and all its children have closed the terminal
            data = b""
        until = time.monotonic() + silent_s
        *lines, rest = re.split(r"[\r\n]+", _ESCAPES.sub("", rest + data.decode("utf-8", "replace")))
        rest = rest[-MAX_KEPT:]
        for line in [*lines, *([] if data else [rest])]:
            if bars.read(line):
                report.progress(*bars.sums())
            if line.strip() and not bars.read(line) and line not in shown:
                if len(shown) >= MAX_SHOWN:
                    shown.clear()
                shown.add(line)
                kept = (kept + line.rstrip() + "\n")[-MAX_KEPT:]
                report.output(line.rstrip() + "\n")
        if not data:
            return kept


def run_quietly(command: List[str], env: Dict[str, str], timeout_s: float = 60.0) -> Tuple[int, str, str]:
    """(exit status, output, errors) of a short program. One that hangs or is missing has failed."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=env, timeout=timeout_s,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return NO_ANSWER, "", "%s did not answer within %g s" % (command[0], timeout_s)
    except OSError as error:
        return 127, "", "%s: %s" % (command[0], error.strerror)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
