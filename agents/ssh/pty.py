"""A shell in a running process's directory and environment, on a terminal, over an SSH connection of its own.

sshd makes the terminal and the runner's `shell` mode turns itself into the shell, so there is no relay on the way: a
key goes through one channel, and a flood is throttled by that channel's window.
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
BUSY_RETRIES = (0.3, 1.0)
# What may be under way when ^C is typed into a flood; more only makes the terminal answer later.
WINDOW = 512 * 1024
READ_BYTES = 64 * 1024
# A key, or a line: any socket that has room has room for this.
MAX_AT_ONCE = 1024
# Of a message with a channel's data (RFC 4254, 5.2): what it is, whose, how much.
DATA = Struct("!BII")


class ShellRefused(DialError):
    """The host was reached, but opens no shell there; the message holds its reason."""


class _RunnerMissing(DialError):
    """The command ended before the runner's first word."""


class Shell:
    """One terminal. `read` and `write_now` never wait: they are an event loop's. The others are for any thread."""

    def __init__(self, connection: Connection, channel: paramiko.Channel, early: bytes) -> None:
        self._connection, self._channel, self._early = connection, channel, early
        self._reader: LoopReader | None = None
        self._lock, self._closed = threading.Lock(), False

    def watch(self, arrived: Callable[[], None]) -> None:
        """Called on an event loop, where `arrived` will be called when there is something new to read, or the end."""
        with self._lock:
            if not self._closed:
                self._reader = self._connection.read_on_loop(self._channel, arrived)
        bell = _ReadableEvent(asyncio.get_running_loop(), arrived)
        self._channel.in_buffer.set_event(cast("threading.Event", bell))

    def read(self) -> bytes | None:
        """What has come: b"" where that is nothing, None at the end. BlockingIOError: to be asked again in a moment."""
        if self._early:
            early, self._early = self._early, b""
            return early
        channel = self._channel
        # Looked at first: all that came before the end is in the buffer by then.
        ended = channel.eof_received or channel.closed
        size = min(len(channel.in_buffer), READ_BYTES)
        if not size:
            return None if ended else b""
        # At its end the host is told of nothing more, and a connection that died as it exchanged keys stays busy.
        if ended or channel.in_window_sofar + size <= channel.in_window_threshold:
            return channel.recv(size)
        try:
            # So much has been taken that the host is told of it.
            return self._connection.at_once(partial(channel.recv, size))
        except BlockingIOError:
            raise  # it is an OSError, and so one of ENDS, but no end
        except CONNECTION_ERRORS:
            return None

    def write_now(self, data: bytes) -> bool:
        """False, and nothing written, where it would have to wait, or is too much to go at once."""
        try:
            return len(data) <= MAX_AT_ONCE and self._connection.at_once(partial(self._send, data))
        except CONNECTION_ERRORS:  # hindered, or closed, which `write` tells
            return False

    def _send(self, data: bytes) -> bool:
        """What Channel.send does for a few bytes, with no more steps than they need: each costs an echo its time."""
        channel = self._channel
        with channel.lock:
            if channel.closed or channel.eof_sent or channel.out_window_size < len(data):
                return False
            channel.out_window_size -= len(data)
        head = DATA.pack(MSG_CHANNEL_DATA, channel.remote_chanid, len(data))
        self._connection.packetizer.send_message(paramiko.Message(head + data))
        return True

    def write(self, data: bytes) -> None:
        """Waits while the host takes nothing. Raises OSError at the end."""
        try:
            self._channel.sendall(data)
        except (EOFError, paramiko.SSHException) as error:
            raise OSError(f"the shell is closed: {error}") from error

    def resize(self, columns: int, rows: int) -> None:
        try:
            self._channel.resize_pty(_size(columns), _size(rows))
        except CONNECTION_ERRORS:
            return  # it has ended; the reader tells

    def close(self) -> None:
        """Hangs up: sshd closes the terminal and the shell gets SIGHUP."""
        with self._lock:
            self._closed = True
        self._connection.close()
        if self._reader is not None:
            self._reader.close()

    @property
    def exit_status(self) -> int | None:
        return self._channel.exit_status if self._channel.exit_status_ready() else None


class _ReadableEvent:
    """What paramiko sets when a channel gets something to be read, and clears when it has been: rings at each first.

    Not in the loop's own thread: a LoopReader tells by itself what it has kept.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, arrived: Callable[[], None]) -> None:
        self._loop, self._arrived = loop, arrived
        self._home = threading.get_ident()
        self._rung = False

    def set(self) -> None:
        if not self._rung:
            self._rung = True
            if threading.get_ident() != self._home:
                with suppress(RuntimeError):  # the loop has gone, and whoever looked at it
                    self._loop.call_soon_threadsafe(self._arrived)

    def clear(self) -> None:
        self._rung = False


def open_shell(
    target: Target, key: paramiko.PKey, deployment: str, run: str, columns: int, rows: int
) -> Shell:
    """Raises a DialError: the host is not reached, or opens no shell on this run (ShellRefused)."""
    request = json.dumps({"deployment": deployment, "run": run}).encode("ascii") + b"\n"
    connection = _dial(target, key)
    try:
        try:
            return _greet(connection, request, columns, rows)
        except _RunnerMissing:
            install_runner.put_runner(connection)
            return _greet(connection, request, columns, rows)
    except BaseException:
        connection.close()
        raise


def _dial(target: Target, key: paramiko.PKey) -> Connection:
    for wait_s in BUSY_RETRIES:
        try:
            return dial(target, key)
        except SshdBusy:
            time.sleep(wait_s)
    return dial(target, key)


def _greet(connection: Connection, request: bytes, columns: int, rows: int) -> Shell:
    channel = open_session(connection, window=WINDOW)
    deadline = time.monotonic() + GREETING_S
    lines = _Lines(channel, deadline)
    try:
        with with_deadline(channel):
            channel.get_pty(TERM, _size(columns), _size(rows))
        start_command(channel, install_runner.command(install_runner.shipped_sha(), "shell"))
        # Nothing is sent before the preface: until then the terminal would echo it and a login shell might read it.
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
