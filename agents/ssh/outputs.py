"""Outputs of a host: the list of files below the output directories of one key, their bytes, and bytes back to them.

One connection of its own for each conversation. Questions are sent ahead, so that many small files do not wait for the
network one by one. The host is not trusted: the number, names and sizes of what it lists are bounded, bytes are
followed by the digest that they have there, and a host that falls silent ends the conversation.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import paramiko

from agents.infra import untrusted
from agents.infra.text import clean_text
from agents.infra.texts import said
from agents.runner.shells.frames import json_line
from agents.runner.wire import MAX_HEADER, Message, WireError, decode_object
from agents.ssh import install_runner
from agents.ssh.bulk import send_all
from agents.ssh.dial import Connection, DialError, dial
from agents.ssh.modes import RunnerMissing, start_mode
from agents.ssh.sockets import CONNECTION_ERRORS
from agents.ssh.targets import Target

BLOCK = 512 * 1024
WINDOW = 8 << 20
SILENT_S = 60.0
# Questions that are sent before the first one is answered.
AHEAD = 64
MAX_FILES, MAX_PATH, MAX_SIZE = 200_000, 1024, 1 << 50
MAX_LEFT_OUT = 8
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_BIGGEST = (1 << 63) - 1


class OutputsBroken(DialError):
    """The conversation ended too early, or the host sends nonsense. It may go better the next time."""


@dataclass(frozen=True, slots=True)
class FileState:
    """What changes when a file is written or replaced."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class ListedFile:
    path: str
    state: FileState


class Part:
    """Bytes of one file that are coming. `chunks` must be read to their end before the next part."""

    def __init__(self, source: _Source, path: str, head: Message) -> None:
        self.path, self.error = path, clean_text(head.get("error") or "", 300)
        self.size, self.state = _whole(head.get("n")), _state(head.get("state"))
        self._source, self._end = source, dict[str, Any]()

    def chunks(self) -> Iterator[bytes]:
        left = self.size
        while left > 0:
            data = self._source.take(left)
            left -= len(data)
            yield data
        self._end = self._source.object()

    def is_whole(self, sha256: str) -> bool:
        """Whether all has come, has this digest at the host too, and the file is still as it was listed. The reader
        tells the digest: it makes one of what it keeps, and a second one would cost as much again."""
        return self._end.get("sha256") == sha256 and _state(self._end.get("state")) == self.state


class OutputsConversation:
    """One conversation with the mode `outputs` of a host. Its methods raise OutputsBroken."""

    def __init__(
        self, close: Callable[[], None], channel: paramiko.Channel, greeting: Message, rest: bytes
    ) -> None:
        """`close` ends its connection."""
        if greeting.get("ok") is not True:
            raise OutputsBroken(clean_text(greeting.get("error") or NO_OUTPUTS, 300))
        self.close = close
        self.exists = greeting.get("exists") is True
        self.left_out: dict[str, int] = {}
        self._source = _Source(channel, rest)

    def list(self) -> Iterator[ListedFile]:
        """Every file, then `left_out`: how many entries were none, by their kind."""
        self._source.ask({"op": "list"})
        seen = 0
        while True:
            page = self._source.object()
            files = page.get("files")
            if not isinstance(files, list) or page.get("error"):
                raise OutputsBroken(clean_text(page.get("error") or NO_OUTPUTS, 300))
            for entry in files:
                seen += 1
                if seen > MAX_FILES:
                    raise OutputsBroken(said("the host lists more than {number} files", number=MAX_FILES))
                if found := listed_file(entry):
                    yield found
            if page.get("end") is True:
                self.left_out = _left_out(page.get("left_out"))
                return

    def read(self, wanted: Iterable[tuple[str, int, int]]) -> Iterator[Part]:
        """The bytes [start, end) of each file, in this order."""
        waiting: deque[str] = deque()
        for path, start, end in wanted:
            self._source.ask({"op": "read", "path": path, "from": start, "to": end})
            waiting.append(path)
            if len(waiting) >= AHEAD:
                yield self._part(waiting.popleft())
        while waiting:
            yield self._part(waiting.popleft())

    def _part(self, path: str) -> Part:
        return Part(self._source, path, self._source.object())

    def same(self, path: str, size: int, sha256: str, mtime_ns: int | None = None) -> FileState | None:
        """The state of the file that is there, if it has this size and digest. It is given this time."""
        self._source.ask({"op": "have", "path": path, "size": size, "sha256": sha256, "mtime_ns": mtime_ns})
        answer = self._source.object()
        return _state(answer.get("state")) if answer.get("have") is True else None

    def lack_of_room(self, size: int) -> str:
        """Why so many bytes cannot be put there; empty if they can."""
        self._source.ask({"op": "room", "size": size})
        answer = self._source.object()
        return "" if answer.get("ok") is True else clean_text(answer.get("error") or NO_OUTPUTS, 300)

    def write(
        self, path: str, size: int, sha256: str, chunks: Iterable[bytes], mtime_ns: int | None = None
    ) -> FileState | str:
        """Put a file there, as old as `mtime_ns` says. Returns its state, or why the host did not take it."""
        self._source.ask({"op": "write", "path": path, "size": size, "sha256": sha256, "mtime_ns": mtime_ns})
        sent = 0
        for data in chunks:
            sent += len(data)
            self._source.send(data)
        if sent != size:
            raise OutputsBroken(said("a stored file has another size than was noted"))
        answer = self._source.object()
        state = _state(answer.get("state")) if answer.get("ok") is True else None
        return state or clean_text(answer.get("error") or NO_OUTPUTS, 300)

    def drop(self) -> None:
        """Delete all of it on the host."""
        self._source.ask({"op": "drop"})
        if self._source.object().get("ok") is not True:
            raise OutputsBroken(NO_OUTPUTS)


def converse(target: Target, key: paramiko.PKey, request: Message) -> OutputsConversation:
    """Begin a conversation about the outputs of `request["key"]`. Raises DialError."""
    connection = dial(target, key)
    try:
        return OutputsConversation(connection.close, *_started(connection, json_line(request)))
    except BaseException:
        connection.close()
        raise


NO_OUTPUTS = said("the host does not answer as it should")


class _Source:
    """The channel: lines and bytes that come, each awaited for a limited time."""

    def __init__(self, channel: paramiko.Channel, rest: bytes) -> None:
        self._channel, self._rest = channel, rest
        channel.settimeout(SILENT_S)

    def ask(self, question: Message) -> None:
        self.send(json_line(question))

    def send(self, data: bytes) -> None:
        try:
            send_all(self._channel, data)
        except CONNECTION_ERRORS as problem:
            raise OutputsBroken(_broken(problem)) from problem

    def take(self, most: int) -> bytes:
        """The next bytes, at least one of them."""
        if not self._rest:
            self._rest = self._received()
        data, self._rest = self._rest[:most], self._rest[most:]
        return data

    def object(self) -> dict[str, Any]:
        """The next line, which is a JSON object."""
        line = b""
        while b"\n" not in self._rest:
            line, self._rest = line + self._rest, self._received()
            if len(line) > MAX_HEADER:
                raise OutputsBroken(NO_OUTPUTS)
        end, _, self._rest = self._rest.partition(b"\n")
        try:
            return decode_object(line + end)
        except WireError as problem:
            raise OutputsBroken(_broken(problem)) from problem

    def _received(self) -> bytes:
        try:
            data = self._channel.recv(BLOCK)
        except CONNECTION_ERRORS as problem:
            raise OutputsBroken(_broken(problem)) from problem
        if not data:
            raise OutputsBroken(said("the host ended the transfer"))
        return data


def _broken(problem: Exception) -> str:
    return said("the transfer broke off: {problem}", problem=str(problem) or type(problem).__name__)


def _started(connection: Connection, line: bytes) -> tuple[paramiko.Channel, Message, bytes]:
    try:
        try:
            return start_mode(connection, "outputs", line, WINDOW)
        except RunnerMissing:
            install_runner.put_runner(connection)
            return start_mode(connection, "outputs", line, WINDOW)
    except (WireError, *CONNECTION_ERRORS) as problem:
        raise OutputsBroken(_broken(problem)) from problem


def listed_file(entry: object) -> ListedFile | None:
    """One entry of a list; None if it makes no sense. A path is `bucket/…`, as an address of storage has it."""
    if not isinstance(entry, list) or len(entry) != 5 or not isinstance(path := entry[0], str):
        return None
    state = _state(entry[1:])
    return ListedFile(path, state) if state is not None and is_path(path) else None


def is_path(path: str) -> bool:
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        return False
    parts = path.split("/")
    is_plain = len(parts) > 1 and not {"", ".", ".."} & set(parts)
    return is_plain and length <= MAX_PATH and not _CONTROL.search(path)


def _state(given: object) -> FileState | None:
    if not isinstance(given, list) or len(given) != 4:
        return None
    numbers = [min(number, _BIGGEST) for number in given if type(number) is int and number > -_BIGGEST]
    if len(numbers) != 4 or not 0 <= numbers[0] <= MAX_SIZE:
        return None
    return FileState(*numbers)


def _whole(value: object) -> int:
    return value if type(value) is int and 0 <= value <= MAX_SIZE else 0


def _left_out(given: object) -> dict[str, int]:
    if not isinstance(given, dict):
        return {}
    counts = {kind: untrusted.whole_number(given[kind], 1, MAX_FILES) for kind in list(given)[:MAX_LEFT_OUT]}
    return {kind[:20]: count for kind, count in counts.items() if isinstance(kind, str) and count}
