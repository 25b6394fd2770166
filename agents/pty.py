"""A shell in a running process's directory and environment, on a terminal, over an SSH connection of its own.

sshd makes the terminal and the runner's `shell` mode turns itself into the shell, so there is no relay on the way: a
key goes through one channel, and a flood is throttled by that channel's window.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress

import paramiko

from agents import install
from agents.dial import ENDS, Busy, Connection, DialError, dial, open_session
from agents.runner.wire import MAX_HEADER, MAX_JUNK, SHELL_PREFACE, WireError, decode_object
from agents.targets import Target
from agents.words import clean

TERM = "xterm-256color"
GREETING_S = 15.0
BUSY_RETRIES = (0.3, 1.0)
# What may be under way when ^C is typed into a flood; more only makes the terminal answer later.
WINDOW = 512 * 1024
READ_BYTES = 64 * 1024


class ShellRefused(DialError):
    """The host was reached, but opens no shell there; the message holds its reason."""


class _NoRunner(DialError):
    """The command ended before the runner's first word."""


class Shell:
    """One terminal. `read` belongs to one thread; the others may be called from any."""

    def __init__(self, connection: Connection, channel: paramiko.Channel, early: bytes) -> None:
        self._connection, self._channel, self._early = connection, channel, early

    def read(self) -> bytes:
        """Waits for output; b"" at the end."""
        if self._early:
            early, self._early = self._early, b""
            return early
        try:
            return self._channel.recv(READ_BYTES)
        except ENDS:
            return b""

    def write(self, data: bytes) -> None:
        """Waits while the host takes nothing. Raises OSError at the end."""
        try:
            self._channel.sendall(data)
        except (EOFError, paramiko.SSHException) as error:
            raise OSError(f"the shell is closed: {error}") from error

    def resize(self, columns: int, rows: int) -> None:
        try:
            self._channel.resize_pty(_size(columns), _size(rows))
        except ENDS:
            return  # it has ended; the reader tells

    def close(self) -> None:
        """Hangs up: sshd closes the terminal and the shell gets SIGHUP."""
        self._connection.close()

    @property
    def exit_status(self) -> int | None:
        return self._channel.exit_status if self._channel.exit_status_ready() else None


def open_shell(
    target: Target, key: paramiko.PKey, deployment: str, run: str, columns: int, rows: int
) -> Shell:
    """Raises a DialError: the host is not reached, or opens no shell on this run (ShellRefused)."""
    request = json.dumps({"deployment": deployment, "run": run}).encode("ascii") + b"\n"
    connection = _dial(target, key)
    try:
        try:
            return _greet(connection, request, columns, rows)
        except _NoRunner:
            install.put_runner(connection)
            return _greet(connection, request, columns, rows)
    except BaseException:
        connection.close()
        raise


def _dial(target: Target, key: paramiko.PKey) -> Connection:
    for wait_s in BUSY_RETRIES:
        try:
            return dial(target, key)
        except Busy:
            time.sleep(wait_s)
    return dial(target, key)


def _greet(connection: Connection, request: bytes, columns: int, rows: int) -> Shell:
    channel = open_session(connection, window=WINDOW)
    deadline = time.monotonic() + GREETING_S
    lines = _Lines(channel, deadline)
    try:
        channel.get_pty(TERM, _size(columns), _size(rows))
        channel.exec_command(install.command(install.shipped_sha(), "shell"))
        # Nothing is sent before the preface: until then the terminal would echo it and a login shell might read it.
        while not lines.next().endswith(SHELL_PREFACE.rstrip(b"\n")):
            pass
        channel.sendall(request)
        answer = decode_object(lines.next())
    except _NoRunner:
        with suppress(*ENDS):
            channel.close()
        raise
    except WireError as error:
        raise ShellRefused(f"no shell: {error}") from error
    except ENDS as error:
        raise ShellRefused(f"the host did not open a shell: {error}") from error
    if answer.get("ok") is not True:
        raise ShellRefused(clean(answer.get("error") or "the host opens no shell", 500))
    channel.settimeout(None)
    return Shell(connection, channel, lines.rest)


class _Lines:
    """Lines of the greeting, bounded in time and size; `rest` is what came behind the last one."""

    def __init__(self, channel: paramiko.Channel, deadline: float) -> None:
        self._channel, self._deadline = channel, deadline
        self._seen = 0
        self.rest = b""

    def next(self) -> bytes:
        while b"\n" not in self.rest:
            self._channel.settimeout(max(0.01, self._deadline - time.monotonic()))
            data = self._channel.recv(4096)
            if not data:
                raise _NoRunner(clean(self.rest.decode("utf-8", "replace")) or "the host ended the session")
            self._seen += len(data)
            self.rest += data
            if self._seen > MAX_JUNK + MAX_HEADER:
                raise ShellRefused("the host sends other output than a shell's greeting")
        line, _, self.rest = self.rest.partition(b"\n")
        return line.rstrip(b"\r")


def _size(number: int) -> int:
    return min(1000, max(1, number))
