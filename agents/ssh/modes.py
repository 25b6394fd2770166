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
    OUTPUTS_PREFACE,
    PUT_PREFACE,
    SHELL_PREFACE,
    STACKS_PREFACE,
    Message,
    WireError,
    decode_object,
)
from agents.ssh import install_runner
from agents.ssh.dial import Connection, DialError, open_session, start_command
from agents.ssh.sockets import CONNECTION_ERRORS

GREETING_S = 15.0
PREFACES = {
    "shell": SHELL_PREFACE,
    "attach": SHELL_PREFACE,
    "files": FILES_PREFACE,
    "put": PUT_PREFACE,
    "outputs": OUTPUTS_PREFACE,
    "stacks": STACKS_PREFACE,
}


class RunnerMissing(DialError):
    """The command ended before the runner's preface: the runner is not on the host."""


class Begun:
    """A mode that has been started, and that waits for its request: its preface has come."""

    def __init__(self, connection: Connection, mode: str, window: int | None = None) -> None:
        """Raises RunnerMissing, WireError or one of CONNECTION_ERRORS."""
        self.connection = connection
        self._channel = open_session(connection, window=window)
        self._lines = _GreetingLines(self._channel, time.monotonic() + GREETING_S)
        try:
            start_command(self._channel, install_runner.command(install_runner.shipped_sha(), mode))
            # Nothing is sent before the preface: a login shell might read it.
            while not self._lines.next().endswith(PREFACES[mode].rstrip(b"\n")):
                pass
        except RunnerMissing:
            self._close()
            raise

    @property
    def is_alive(self) -> bool:
        return self.connection.is_active() and not (self._channel.closed or self._channel.eof_received)

    def ask(self, request: bytes) -> tuple[paramiko.Channel, Message, bytes]:
        """The channel, the answer, and what came after it. Raises as the constructor does."""
        self._lines.deadline = time.monotonic() + GREETING_S
        try:
            self._channel.sendall(request)
            return self._channel, decode_object(self._lines.next()), self._lines.rest
        except RunnerMissing:
            self._close()
            raise

    def _close(self) -> None:
        with suppress(*CONNECTION_ERRORS):
            self._channel.close()


def start_mode(
    connection: Connection, mode: str, request: bytes, window: int | None = None
) -> tuple[paramiko.Channel, Message, bytes]:
    """Start a mode and ask at once."""
    return Begun(connection, mode, window).ask(request)


class _GreetingLines:
    """The lines before the shell's own output, limited in time and size. `rest` is what came after the last line."""

    def __init__(self, channel: paramiko.Channel, deadline: float) -> None:
        self._channel, self.deadline = channel, deadline
        self._seen = 0
        self.rest = b""

    def next(self) -> bytes:
        while b"\n" not in self.rest:
            self._channel.settimeout(max(0.01, self.deadline - time.monotonic()))
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
