"""Starts a mode of the runner that has a channel of its own: one line of JSON there, one line back, then more."""

from __future__ import annotations

import time
from contextlib import suppress

import paramiko

from agents.infra.text import clean_text
from agents.runner.wire import (
    FILES_PREFACE,
    MAX_HEADER,
    MAX_JUNK,
    SHELL_PREFACE,
    Message,
    WireError,
    decode_object,
)
from agents.ssh import install_runner
from agents.ssh.dial import Connection, DialError, open_session, start_command
from agents.ssh.sockets import CONNECTION_ERRORS

GREETING_S = 15.0
PREFACES = {"shell": SHELL_PREFACE, "files": FILES_PREFACE}


class RunnerMissing(DialError):
    """The command ended before the runner's preface: the runner is not on the host."""


def start_mode(
    connection: Connection, mode: str, request: bytes, window: int | None = None
) -> tuple[paramiko.Channel, Message, bytes]:
    """The channel, the answer, and what came after it. Raises RunnerMissing, WireError or one of CONNECTION_ERRORS."""
    channel = open_session(connection, window=window)
    lines = _GreetingLines(channel, time.monotonic() + GREETING_S)
    try:
        start_command(channel, install_runner.command(install_runner.shipped_sha(), mode))
        # Nothing is sent before the preface: a login shell might read it.
        while not lines.next().endswith(PREFACES[mode].rstrip(b"\n")):
            pass
        channel.sendall(request)
        return channel, decode_object(lines.next()), lines.rest
    except RunnerMissing:
        with suppress(*CONNECTION_ERRORS):
            channel.close()
        raise


class _GreetingLines:
    """The lines before the shell's own output, limited in time and size. `rest` is what came after the last line."""

    def __init__(self, channel: paramiko.Channel, deadline: float) -> None:
        self._channel, self._deadline = channel, deadline
        self._seen = 0
        self.rest = b""

    def next(self) -> bytes:
        while b"\n" not in self.rest:
            self._channel.settimeout(max(0.01, self._deadline - time.monotonic()))
            data = self._channel.recv(4096)
            if not data:
                raise RunnerMissing(clean_text(self._all_output()) or "the host ended the session")
            self._seen += len(data)
            self.rest += data
            if self._seen > MAX_JUNK + MAX_HEADER:
                raise WireError("the host sends other output than the runner's greeting")
        line, _, self.rest = self.rest.partition(b"\n")
        return line.rstrip(b"\r")

    def _all_output(self) -> str:
        """What was printed instead, with the errors."""
        errors = self._channel.recv_stderr(4096) if self._channel.recv_stderr_ready() else b""
        return (self.rest + errors).decode("utf-8", "replace")
