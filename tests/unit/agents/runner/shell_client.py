"""A console's end of a shell: it starts `shell` or `attach` as sshd does, and speaks the frames."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

from agents.runner.processes import all_processes
from agents.runner.shells import frames as shell_wire
from agents.runner.shells.frames import BEAT, END, IN, LOST, NOTE, OUT, TOOK, Frames
from agents.runner.wire import SHELL_PREFACE
from tests.unit.agents.runner.protocol_client import PYTHON

PATIENCE_S = 60.0


def name_of(host, key="k1"):
    """A shell's name is known to all processes of this machine's user, as no key of two shells is ever the same."""
    return key + hashlib.sha256(os.fsencode(host.home)).hexdigest()[:16]


class ShellClient:
    """`screen` has the output in its order; each byte is checked to have the offset that it must have."""

    def __init__(self, host, run="r1", key="k1", new=True, **request):
        settings = {"keep_s": 1800, **request.pop("settings", {})}
        document = {
            "v": 2,
            "deployment": "dep",
            "run": run,
            "shell": name_of(host, key),
            "client": "c1",
            "cols": 80,
            "rows": 24,
        }
        document.update({"new": settings} if new else {}, **request)
        self.process = subprocess.Popen(
            [PYTHON, str(host.runner), "shell" if new else "attach"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**host.env, "PS1": "$ "}, bufsize=0,
        )  # fmt: skip
        self.screen, self.notes, self.end, self.lost, self.took = b"", [], None, [], 0
        self.gone, self._frames, self._rest = False, Frames(), b""
        self.process.stdin.write(shell_wire.json_line(document))
        self.answer = json.loads(self._line(SHELL_PREFACE))
        self.at = self.answer.get("at")
        self.typed = self.took = self.answer.get("taken", 0)
        self._take(self._rest)

    def _line(self, before):
        until = time.monotonic() + PATIENCE_S
        while self._rest.count(b"\n") < before.count(b"\n") + 1:
            assert select.select([self.process.stdout], [], [], until - time.monotonic())[0], self._rest
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, self._rest
            self._rest += data
        assert self._rest.startswith(before)
        line, _, self._rest = self._rest[len(before) :].partition(b"\n")
        return line

    def _take(self, data):
        for kind, number, payload in self._frames.feed(data):
            if kind == OUT:
                assert number == self.at, "output without a gap and without a double"
                self.at += len(payload)
                self.screen += payload
            elif kind == TOOK:
                self.took = number
            elif kind == LOST:
                self.at = number
                self.lost.append(payload)
            elif kind == NOTE:
                self.notes.append(shell_wire.json_of(payload))
            elif kind == END:
                self.end = shell_wire.json_of(payload)
            else:
                assert kind == BEAT

    def step(self, wait_s=0.1):
        if select.select([self.process.stdout], [], [], wait_s)[0]:
            data = os.read(self.process.stdout.fileno(), 65536)
            self.gone = not data
            self._take(data)

    def until(self, condition, what="a condition"):
        until = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            assert time.monotonic() < until and not self.gone, f"never came: {what}; {self.screen[-500:]}"
            self.step()
        return found

    def seen(self, mark):
        self.until(lambda: mark in self.screen, f"{mark} on the screen")
        return self.screen

    def send(self, kind, number=0, payload=b""):
        self.send_bytes(shell_wire.frame(kind, number, payload))

    def send_bytes(self, data):
        with suppress(BrokenPipeError):
            self.process.stdin.write(data)

    def waiting(self):
        """How many bytes were sent that the host has not read."""
        return int.from_bytes(fcntl.ioctl(self.process.stdin, termios.FIONREAD, bytes(4)), sys.byteorder)

    def type(self, keys, at=None):
        for begin in range(0, len(keys), 16384):
            piece = keys[begin : begin + 16384]
            self.send(IN, self.typed if at is None else at + begin, piece)
            self.typed += len(piece) if at is None else 0

    def drop(self):
        """The connection is cut."""
        self.process.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def holders(host):
    """The processes that hold shells of this host."""
    found = []
    for pid in all_processes():
        with suppress(OSError):
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if title.startswith(b"trainyard-shell ") and b"HOME=" + os.fsencode(host.home) in environ:
                found.append(pid)
    return found


def kill_holders(host):
    for pid in holders(host):
        os.kill(pid, signal.SIGKILL)
