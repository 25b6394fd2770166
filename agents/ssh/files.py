"""Files of a run: the list of a directory, and the bytes of a file, over an SSH connection of their own.

The host is not trusted: what it sends is limited in size and in time, and every name is looked at. Whoever asks waits
for at most 20 s in all until the list is there, or the first bytes of the file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import paramiko

from agents.infra.text import clean_text
from agents.infra.texts import said
from agents.runner.file_access import MAX_BYTES, MAX_ENTRIES
from agents.runner.shells.frames import json_line
from agents.runner.wire import Message, WireError
from agents.ssh import install_runner
from agents.ssh.deadlines import closing_at
from agents.ssh.dial import Connection, DialError, dial
from agents.ssh.modes import RunnerMissing, start_mode
from agents.ssh.sockets import CONNECTION_ERRORS
from agents.ssh.targets import Target

BLOCK = 256 * 1024
# A host that sends nothing for so long, and a file that takes so long.
SILENT_S, WHOLE_S = 20.0, 900.0
# From the look-up of the name to the answer of the host.
WITHIN_S = 20.0
LOOKUP_S = 8.0
NO_ANSWER = said("the host does not answer")


class FileRefused(DialError):
    """The host was reached, and does not give the file or the list. The message has its reason."""


class HostSilent(FileRefused):
    """The host was reached, and then gave no answer, or none that can be understood."""


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    kind: str
    size: int
    changed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Listing:
    entries: tuple[Entry, ...]
    more: int


def list_files(target: Target, key: paramiko.PKey, request: Message) -> Listing:
    """The directory `path` of a run. Raises DialError."""
    until = time.monotonic() + WITHIN_S
    connection = dial(target, key, lookup_s=LOOKUP_S, until=until)
    try:
        with closing_at(connection, until):
            _, answer, _ = _ask(connection, {**request, "op": "list"})
        entries = answer.get("entries")
        found = [_entry(each) for each in entries[:MAX_ENTRIES]] if isinstance(entries, list) else []
        return Listing(tuple(each for each in found if each), _whole(answer.get("more")))
    finally:
        connection.close()


@dataclass(slots=True)
class RemoteFile:
    """A file that is being fetched. `parts` closes its connection at the end; who does not read it calls `close`."""

    size: int
    _connection: Connection
    _channel: paramiko.Channel
    _rest: bytes

    def parts(self) -> Iterator[bytes]:
        """The bytes. Raises OSError when they end too early, so that a part is not taken for the whole."""
        left, deadline = self.size, time.monotonic() + WHOLE_S
        try:
            self._channel.settimeout(SILENT_S)
            while left > 0:
                data = self._rest or self._channel.recv(BLOCK)
                self._rest = b""
                if not data or time.monotonic() > deadline:
                    raise OSError("the file ended too early")
                yield data[:left]
                left -= len(data)
        except CONNECTION_ERRORS as problem:
            raise OSError(f"the file did not come: {problem}") from problem
        finally:
            self.close()

    def close(self) -> None:
        self._connection.close()


def open_file(target: Target, key: paramiko.PKey, request: Message) -> RemoteFile:
    """The file `path` of a run. Raises DialError."""
    until = time.monotonic() + WITHIN_S
    connection = dial(target, key, lookup_s=LOOKUP_S, until=until)
    try:
        with closing_at(connection, until):
            channel, answer, rest = _ask(connection, {**request, "op": "read"})
        size = _whole(answer.get("size"))
        if size > MAX_BYTES:
            raise FileRefused(said("the file is too large"))
        return RemoteFile(size, connection, channel, rest)
    except BaseException:
        connection.close()
        raise


def _ask(connection: Connection, request: Message) -> tuple[paramiko.Channel, Message, bytes]:
    line = json_line(request)
    try:
        try:
            channel, answer, rest = start_mode(connection, "files", line)
        except RunnerMissing:
            install_runner.put_runner(connection)
            channel, answer, rest = start_mode(connection, "files", line)
    except (WireError, *CONNECTION_ERRORS) as problem:
        raise HostSilent(said("the host sent no files: {problem}", problem=problem)) from problem
    if answer.get("ok") is not True:
        raise FileRefused(clean_text(answer.get("error") or NO_ANSWER, 300))
    return channel, answer, rest


def _entry(given: object) -> Entry | None:
    if not isinstance(given, dict) or not isinstance(name := given.get("name"), str):
        return None
    if not name or "/" in name or "\0" in name or len(name) > 255:
        return None
    kind = given.get("kind")
    changed_at = None
    if isinstance(changed := given.get("changed"), int | float):
        with suppress(ValueError, OverflowError, OSError):
            changed_at = datetime.fromtimestamp(changed, UTC)
    return Entry(
        name,
        kind if kind in ("file", "directory", "link") else "other",
        _whole(given.get("size")),
        changed_at,
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
