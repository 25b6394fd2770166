"""A shell in the directory and environment of a run, on a terminal, over an SSH connection of its own.

sshd makes the terminal, and the runner's `shell` mode replaces itself by the shell. So there is no relay on the way: a
key goes through one channel, and the window of that channel throttles a flood of output.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from struct import Struct
from typing import cast

import paramiko
from paramiko.common import MSG_CHANNEL_DATA

from agents.infra.text import clean_text
from agents.runner.wire import MAX_HEADER, MAX_JUNK, SHELL_PREFACE, WireError, decode_object
from agents.ssh import install_runner
from agents.ssh.dial import (
    Connection,
    DialError,
    SshdBusy,
    dial,
    open_session,
    start_command,
    with_deadline,
)
from agents.ssh.packets import LoopReader
from agents.ssh.sockets import CONNECTION_ERRORS
from agents.ssh.targets import Target

TERM = "xterm-256color"
GREETING_S = 15.0
# A person waits for the shell: long enough for the second name server, which the system asks after 5 s.
LOOKUP_S = 8.0
BUSY_RETRIES = (0.3, 1.0)
# So much output may be on its way when somebody types ^C into a flood. More only makes the terminal answer later.
WINDOW = 512 * 1024
READ_BYTES = 64 * 1024
# A key or a line: a socket that has any room has room for this.
MAX_AT_ONCE = 1024
# The head of a message with data of a channel (RFC 4254, 5.2): kind of message, channel, length.
DATA = Struct("!BII")


class ShellRefused(DialError):
    """The host was reached, but opens no shell. The message gives its reason."""


class _RunnerMissing(DialError):
    """The command ended before the runner's preface: the runner is not on the host."""


class Shell:
    """One terminal. `watch`, `read` and `write_now` are for an event loop and never wait; threads call the others."""

    def __init__(self, connection: Connection, channel: paramiko.Channel, first_output: bytes) -> None:
        self._connection, self._channel, self._first_output = connection, channel, first_output
        self._reader: LoopReader | None = None
        self._lock, self._closed = threading.Lock(), False

    def watch(self, on_output: Callable[[], None]) -> None:
        """Call this on an event loop. `on_output` is called there when there is output to read, and at the end."""
        with self._lock:
            if not self._closed:
                self._reader = self._connection.read_on_loop(self._channel, on_output)
        event = _ReadableEvent(asyncio.get_running_loop(), on_output)
        self._channel.in_buffer.set_event(cast("threading.Event", event))

    def read(self) -> bytes | None:
        """The output that has arrived: b"" if there is none, None at the end. On BlockingIOError read again soon."""
        if self._first_output:
            first_output, self._first_output = self._first_output, b""
            return first_output
        channel = self._channel
        # Read this first: then all output from before the end is in the buffer.
        ended = channel.eof_received or channel.closed
        size = min(len(channel.in_buffer), READ_BYTES)
        if not size:
            return None if ended else b""
        # No window is reported after the end, and a connection that died in a key exchange would stay busy for ever.
        if ended or channel.in_window_sofar + size <= channel.in_window_threshold:
            return channel.recv(size)
        try:
            # So much was read that paramiko reports the new window to the host.
            return self._connection.without_waiting(partial(channel.recv, size))
        except BlockingIOError:
            raise  # an OSError, and so one of CONNECTION_ERRORS, but not the end of the connection
        except CONNECTION_ERRORS:
            return None

    def write_now(self, data: bytes) -> bool:
        """Write without waiting. False, and nothing is written, if it had to wait or if the data is too long."""
        try:
            return len(data) <= MAX_AT_ONCE and self._connection.without_waiting(partial(self._send, data))
        except CONNECTION_ERRORS:  # it had to wait, or the shell is closed: `write` raises then
            return False

    def _send(self, data: bytes) -> bool:
        """Do what Channel.send does, with as few steps as a short message needs: each step delays the echo."""
        channel = self._channel
        with channel.lock:
            if channel.closed or channel.eof_sent or channel.out_window_size < len(data):
                return False
            channel.out_window_size -= len(data)
        head = DATA.pack(MSG_CHANNEL_DATA, channel.remote_chanid, len(data))
        self._connection.packetizer.send_message(paramiko.Message(head + data))
        return True

    def write(self, data: bytes) -> None:
        """Write all of it, waiting while the host takes nothing. Raises OSError when the shell is closed."""
        try:
            self._channel.sendall(data)
        except (EOFError, paramiko.SSHException) as error:
            raise OSError(f"the shell is closed: {error}") from error

    def resize(self, columns: int, rows: int) -> None:
        try:
            self._channel.resize_pty(_size(columns), _size(rows))
        except CONNECTION_ERRORS:
            return  # the shell has ended; the reader notices that

    def close(self) -> None:
        """Hang up: sshd closes the terminal, and the shell gets SIGHUP."""
        with self._lock:
            self._closed = True
        self._connection.close()
        if self._reader is not None:
            self._reader.close()

    @property
    def exit_status(self) -> int | None:
        return self._channel.exit_status if self._channel.exit_status_ready() else None


class _ReadableEvent:
    """The event that paramiko sets when a channel has output and clears when all of it was read.

    The first `set` after a `clear` calls `on_output` on the loop. A `set` in the loop's own thread does not: there the
    LoopReader calls `on_output` itself.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_output: Callable[[], None]) -> None:
        self._loop, self._on_output = loop, on_output
        self._loop_thread = threading.get_ident()
        self._is_set = False

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            if threading.get_ident() != self._loop_thread:
                with suppress(RuntimeError):  # the loop is closed, and with it the viewer of this shell
                    self._loop.call_soon_threadsafe(self._on_output)

    def clear(self) -> None:
        self._is_set = False


def open_shell(
    target: Target, key: paramiko.PKey, deployment: str, run: str, columns: int, rows: int
) -> Shell:
    """Open a shell on a run. Raises a DialError: the host cannot be reached, or opens no shell (ShellRefused)."""
    request = json.dumps({"deployment": deployment, "run": run}).encode("ascii") + b"\n"
    connection = _dial(target, key)
    try:
        try:
            return _open_on(connection, request, columns, rows)
        except _RunnerMissing:
            install_runner.put_runner(connection)
            return _open_on(connection, request, columns, rows)
    except BaseException:
        connection.close()
        raise


def _dial(target: Target, key: paramiko.PKey) -> Connection:
    for wait_s in BUSY_RETRIES:
        try:
            return dial(target, key, lookup_s=LOOKUP_S)
        except SshdBusy:
            time.sleep(wait_s)
    return dial(target, key, lookup_s=LOOKUP_S)


def _open_on(connection: Connection, request: bytes, columns: int, rows: int) -> Shell:
    channel = open_session(connection, window=WINDOW)
    deadline = time.monotonic() + GREETING_S
    lines = _GreetingLines(channel, deadline)
    try:
        with with_deadline(channel):
            channel.get_pty(TERM, _size(columns), _size(rows))
        start_command(channel, install_runner.command(install_runner.shipped_sha(), "shell"))
        # Nothing is sent before the preface: the terminal would echo it, and a login shell might read it.
        while not lines.next().endswith(SHELL_PREFACE.rstrip(b"\n")):
            pass
        channel.sendall(request)
        answer = decode_object(lines.next())
    except _RunnerMissing:
        with suppress(*CONNECTION_ERRORS):
            channel.close()
        raise
    except WireError as error:
        raise ShellRefused(f"no shell: {error}") from error
    except CONNECTION_ERRORS as error:
        raise ShellRefused(f"the host did not open a shell: {error}") from error
    if answer.get("ok") is not True:
        raise ShellRefused(clean_text(answer.get("error") or "the host opens no shell", 500))
    channel.settimeout(None)
    return Shell(connection, channel, lines.rest)


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
                raise _RunnerMissing(
                    clean_text(self.rest.decode("utf-8", "replace")) or "the host ended the session"
                )
            self._seen += len(data)
            self.rest += data
            if self._seen > MAX_JUNK + MAX_HEADER:
                raise ShellRefused("the host sends other output than a shell's greeting")
        line, _, self.rest = self.rest.partition(b"\n")
        return line.rstrip(b"\r")


def _size(number: int) -> int:
    return min(1000, max(1, number))
