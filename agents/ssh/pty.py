"""A connection to a shell in the directory and environment of a run, over an SSH connection of its own.

A process on the host holds the shell and its terminal (agents/runner/shells/holder.py). It gets the descriptors of the
channel from the runner's `shell` mode, so there is no other relay on the way: a key goes through one channel, and the
window of that channel throttles a flood of output. When the connection ends, the shell stays, and another connection
finds it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import paramiko
from paramiko.common import MSG_CHANNEL_DATA

from agents.infra.text import clean_text
from agents.runner.shells.frames import (
    BEAT,
    CLOSE,
    END,
    HEAD,
    IN,
    LOST,
    NOTE,
    OUT,
    SIZE,
    TOOK,
    Frames,
    json_line,
    json_of,
)
from agents.runner.wire import Message, WireError
from agents.ssh import ahead, install_runner, tools
from agents.ssh.dial import (
    Connection,
    DialError,
    SshdBusy,
    dial,
)
from agents.ssh.modes import GREETING_S, Begun, RunnerMissing
from agents.ssh.packets import DATA, LoopReader, ShowOutput
from agents.ssh.sockets import CONNECTION_ERRORS
from agents.ssh.targets import Target

# What an event of a shell says: took, lost, end, note or beat.
Event = dict[str, Any]

# The version of the request and the frames that this console speaks (agents/runner/shells/frames.py).
VERSION = 2
CONNECTION_LOST = "The connection to the host was lost."
PIECE_BYTES = 16 * 1024
# A person waits for the shell: long enough for the second name server, which the system asks after 5 s.
LOOKUP_S = 8.0
BUSY_RETRIES = (0.3, 1.0)
# So much output may be on its way when somebody types ^C into a flood. More only makes the terminal answer later.
WINDOW = 512 * 1024
READ_BYTES = 64 * 1024
# A key or a line: a socket that has any room has room for this.
MAX_AT_ONCE = 1024


class ShellRefused(DialError):
    """The host was reached, but opens no shell. The message gives its reason."""


class ShellGone(ShellRefused):
    """The host was reached, but the shell is not there any more. The message gives the reason."""


class _ToolsMissing(DialError):
    """The host is without the tools that the console has for its kind of processor."""

    def __init__(self, machine: str) -> None:
        super().__init__(f"the tools for {machine} are not on the host")
        self.machine = machine


class ShellChannel:
    """The bytes of a channel. `watch`, `read` and `write_now` are for an event loop and never wait; threads call the
    others."""

    def __init__(self, connection: Connection, channel: paramiko.Channel, first_output: bytes) -> None:
        self._connection, self._channel, self._first_output = connection, channel, first_output
        self._reader: LoopReader | None = None
        self._lock, self._closed = threading.Lock(), False

    @property
    def problem(self) -> str:
        """How the other end went beyond a limit of the connection, if it did."""
        return self._connection.misbehaviour

    def watch(self, on_output: Callable[[], None], show: ShowOutput | None = None) -> None:
        """Call this on an event loop. `on_output` is called there when there is output to read, and at the end. Before
        that, a short piece of output is offered to `show`, where nothing is before it."""
        with self._lock:
            if not self._closed:
                show = None if self._first_output else show
                self._reader = self._connection.read_on_loop(self._channel, on_output, show)
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
        if self._reader is not None and (kept := len(self._reader.kept)):
            if len(channel.in_buffer) or channel.in_window_sofar + kept <= channel.in_window_threshold:
                channel.in_window_sofar += kept  # only this loop reads from the channel
                return self._reader.take()
            channel.in_buffer.feed(self._reader.take())
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
        if len(data) > MAX_AT_ONCE:
            return False
        try:
            if self._reader is not None:
                return self._reader.send(data)
            return self._connection.without_waiting(partial(self._send, data))
        except CONNECTION_ERRORS:  # it had to wait, or the shell is closed: `write` raises then
            return False

    def _send(self, data: bytes) -> bool:
        """Do what Channel.send does, but never wait for the window. This is the way through a jump host."""
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

    def close(self) -> None:
        """Hang up. The channel ends on the host too."""
        with self._lock:
            self._closed = True
        self._connection.close()
        if self._reader is not None:
            self._reader.close()


class Shell:
    """One connection to a shell that its host holds. Its frames become output and events (`read`).

    `watch`, `read`, `write_now` and `beat` are for an event loop and never wait; threads call the others.
    """

    def __init__(self, channel: ShellChannel, answer: Message, rest: bytes = b"") -> None:
        self.answer = answer
        # Why the shell is over for this connection, if it did not end by itself.
        self.problem = ""
        self._channel = channel
        self._show: ShowOutput | None = None
        self._frames = Frames()
        self._arrived: deque[bytes | Event] = deque()
        self._ended = False
        self._at, self._typed = _whole(answer.get("at")), _whole(answer.get("taken"))
        if rest:
            self._take(rest)

    def watch(self, on_output: Callable[[], None], show: ShowOutput | None = None) -> None:
        """Call this on an event loop. `on_output` is called there when there is output to read, and at the end. Before
        that, an echo is offered to `show`: if it returns False, `read` returns the echo."""
        self._show = show
        self._channel.watch(on_output, None if show is None else self._show_frame)

    def _show_frame(self, data: bytes) -> bool:
        """Show the output of one whole frame, before which nothing waits."""
        if self._arrived or self._ended or self._frames.rest or len(data) <= HEAD.size:
            return False
        kind, size, number = HEAD.unpack_from(data)
        if kind != OUT or number != self._at or size != len(data) - HEAD.size:
            return False
        if self._show is None or not self._show(data[HEAD.size :]):
            return False
        self._at += size
        return True

    def read(self) -> bytes | Event | None:
        """What has arrived next: output, an event, b"" if there is nothing, None at the end.

        On BlockingIOError read again soon.
        """
        while not self._arrived:
            if self._ended:
                return None
            data = self._channel.read()
            if data is None:
                self._ended = True
                self.problem = self.problem or self._channel.problem or CONNECTION_LOST
            elif data:
                self._take(data)
            else:
                return b""
        return self._arrived.popleft()

    def _take(self, data: bytes) -> None:
        """Keep what the frames bring. A host that breaks the protocol loses this connection."""
        try:
            frames = self._frames.feed(data)
            output = [self._output(*frame) if frame[0] == OUT else self._event(*frame) for frame in frames]
        except WireError as error:
            self._ended, self.problem = (
                True,
                f"The host broke the protocol of shells: {clean_text(str(error), 200)}",
            )
            self._channel.close()
            return
        for item in output:
            if isinstance(item, bytes) and self._arrived and isinstance(self._arrived[-1], bytes):
                self._arrived[-1] += item
            elif item:
                self._arrived.append(item)

    def _output(self, kind: int, number: int, payload: bytes) -> bytes:
        if number != self._at:
            raise WireError(f"output at {number}, where {self._at} was due")
        self._at += len(payload)
        return payload

    def _event(self, kind: int, number: int, payload: bytes) -> Event | None:
        if kind == TOOK:
            if number > self._typed:
                raise WireError(f"{number} typed bytes were taken of {self._typed}")
            return {"took": number}
        if kind == LOST:
            if number < self._at:
                raise WireError(f"output before {number} is lost, after all before {self._at} was sent")
            self._at = number
            return {"lost": number, "modes": payload.decode("latin-1")}
        if kind == END:
            self._ended = True
            return {"end": json_of(payload)}
        if kind == NOTE:
            return {"note": json_of(payload)}
        # A beat. The newer host's frames that are not known here are ignored too.
        return {"beat": True} if kind == BEAT else None

    def write_now(self, data: bytes) -> bool:
        """Write without waiting. False, and nothing is written, if it had to wait or if the data is too long."""
        if not self._channel.write_now(HEAD.pack(IN, len(data), self._typed) + data):
            return False
        self._typed += len(data)
        return True

    def write(self, data: bytes) -> None:
        """Write all of it, waiting while the host takes nothing. Raises OSError when the connection is over."""
        for at in range(0, len(data), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            self._channel.write(HEAD.pack(IN, len(piece), self._typed) + piece)
            self._typed += len(piece)

    def beat(self) -> None:
        """Tell the host that somebody is here. Where that had to wait, more important bytes are on their way."""
        self._channel.write_now(HEAD.pack(BEAT, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        with suppress(OSError):  # the shell has ended; the reader notices that
            self._channel.write(HEAD.pack(SIZE, 0, _size(columns) << 32 | _size(rows)))

    def end(self, reason: str) -> None:
        """End the shell on its host. Its last frame comes as an event."""
        words = reason.encode()[:1000]
        self._channel.write(HEAD.pack(CLOSE, len(words), 0) + words)

    def wait_for_end(self) -> None:
        """Wait, in a thread, until the host says that the shell is over. Raises OSError if it does not."""
        deadline = time.monotonic() + GREETING_S
        while time.monotonic() < deadline:
            item = self.read()
            if item is None:
                raise OSError(self.problem)
            if isinstance(item, dict) and "end" in item:
                return
            if not item:
                time.sleep(0.02)
        raise OSError("the host does not end the shell")

    def close(self) -> None:
        """Close this connection. A shell that is not kept ends with it."""
        self._channel.close()


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


def prepare_shell(target: Target, key: paramiko.PKey, is_new: bool) -> None:
    """Make a connection for `open_shell` ahead, because a person has asked for the page of a shell on this host."""
    ahead.prepare(target, key, _mode(is_new), _begin)


def open_shell(target: Target, key: paramiko.PKey, request: Message) -> Shell:
    """Attach to a shell, or make it (`new` in the request). Raises a DialError: the host cannot be reached, or has no
    such shell (ShellRefused)."""
    request = {"v": VERSION, **request}
    if "new" in request:
        request["tools"] = tools.offered()
    mode = _mode("new" in request)
    begun = ahead.take(target, key, mode)
    connection = begun.connection if begun else _dial(target, key)
    try:
        return _open_with_all(connection, mode, request, begun)
    except BaseException:
        connection.close()
        raise


def _mode(is_new: bool) -> str:
    """The mode of the runner. To attach to a shell that is there takes a third of the time of making one."""
    return "shell" if is_new else "attach"


def _begin(target: Target, key: paramiko.PKey, mode: str) -> Begun:
    connection = _dial(target, key)
    try:
        return Begun(connection, mode, WINDOW)
    except BaseException:
        connection.close()
        raise


def _open_with_all(connection: Connection, mode: str, request: Message, begun: Begun | None) -> Shell:
    """Attach, and put on the host what it is without: the runner, then the tools of shells."""
    for _ in range(2):
        try:
            return _open_on(connection, mode, json_line(request), begun)
        except RunnerMissing:
            install_runner.put_runner(connection)
        except _ToolsMissing as missing:
            if not tools.put(connection, missing.machine):
                request = {**request, "tools": {}}
        begun = None
    return _open_on(connection, mode, json_line(request))


def _dial(target: Target, key: paramiko.PKey) -> Connection:
    for wait_s in BUSY_RETRIES:
        try:
            return dial(target, key, lookup_s=LOOKUP_S)
        except SshdBusy:
            time.sleep(wait_s)
    return dial(target, key, lookup_s=LOOKUP_S)


def _open_on(connection: Connection, mode: str, request: bytes, begun: Begun | None = None) -> Shell:
    try:
        channel, answer, rest = (begun or Begun(connection, mode, WINDOW)).ask(request)
    except WireError as error:
        raise ShellRefused(f"no shell: {error}") from error
    except CONNECTION_ERRORS as error:
        raise ShellRefused(f"the host did not open a shell: {error}") from error
    if isinstance(machine := answer.get("missing"), str):
        with suppress(*CONNECTION_ERRORS):
            channel.close()
        raise _ToolsMissing(clean_text(machine, 20))
    if answer.get("ok") is not True:
        words = clean_text(answer.get("error") or "the host opens no shell", 500)
        raise (ShellGone if answer.get("gone") is True else ShellRefused)(words)
    channel.settimeout(None)
    return Shell(ShellChannel(connection, channel, b""), answer, rest)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _size(number: int) -> int:
    return min(1000, max(1, number))
