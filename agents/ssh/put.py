"""Puts a file into the cache of a host, by its SHA-256, over an SSH connection of its own.

A connection that was cut goes on from the byte where it ended. The host is not trusted: what it answers is a few short
lines, each with a deadline. All files that this process ships share one rate, so that logs and shells keep their part
of the network and of the processor.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import paramiko

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

# paramiko sends 32 KiB at a time anyway. A block is what the rate is asked for.
BLOCK = 128 * 1024
# A host that takes nothing, or says nothing, for so long. It may be hashing what an earlier connection has left.
SILENT_S = 90.0
LOOKUP_S = 8.0
# On a busy machine who sleeps is woken up so late at most; longer, and it is a pause.
LATE_S = 0.1

# The bytes of a file from an offset on.
Read = Callable[[int], Iterator[bytes]]
Progress = Callable[[int], None]


class PutRefused(DialError):
    """The host was reached and does not take the file. `reason`: `disk_full`, `damaged`, `storage`, or another word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PutStopped(Exception):
    """The caller does not want the file to be shipped any more."""


@dataclass(frozen=True, slots=True)
class Blob:
    sha256: str
    size: int


class Rate:
    """At most so many bytes a second, for all threads together. 0: as many as possible."""

    def __init__(self, bytes_s: float) -> None:
        self._bytes_s = bytes_s
        self._lock = threading.Lock()
        self._free_at = -math.inf

    def take(self, size: int) -> None:
        """Wait until so many bytes may be sent. Who woke up late makes up for it; a pause is not saved up."""
        if self._bytes_s <= 0:
            return
        with self._lock:
            now = time.monotonic()
            begin = self._free_at if now - self._free_at <= LATE_S else now
            self._free_at = begin + size / self._bytes_s
        if begin > now:
            time.sleep(begin - now)


def put_blob(
    target: Target,
    key: paramiko.PKey,
    deployment: str,
    blob: Blob,
    read: Read,
    rate: Rate,
    progress: Progress = lambda done: None,
) -> None:
    """Ship the file. Returns when the host has all of it. Raises DialError, PutStopped, or what `read` raises.

    `progress` is told how many bytes the host has, also while another connection ships the file. It may raise
    PutStopped.
    """
    connection = dial(target, key, lookup_s=LOOKUP_S)
    try:
        _Shipping(connection, deployment, blob, rate, progress).run(read)
    except (WireError, *CONNECTION_ERRORS) as problem:
        raise PutRefused("cut", said("the connection ended: {problem}", problem=problem)) from problem
    finally:
        connection.close()


class _Shipping:
    def __init__(
        self, connection: Connection, deployment: str, blob: Blob, rate: Rate, progress: Progress
    ) -> None:
        self._connection, self._blob, self._rate, self._progress = connection, blob, rate, progress
        self._request = json_line({"deployment": deployment, "sha256": blob.sha256, "size": blob.size})

    def run(self, read: Read) -> None:
        answer = self._begin()
        while (have := answer.get("have")) is not None:
            self._progress(min(have, self._blob.size) if isinstance(have, int) else 0)
            answer = self._line()
        self._check(answer)
        if answer.get("complete") is not True:
            start = answer.get("from")
            if not isinstance(start, int) or not 0 <= start <= self._blob.size:
                raise WireError("an offset outside of the file")
            self._send(read, start)
            self._check(self._line())
        else:
            self._check(self._line())
        self._progress(self._blob.size)

    def _begin(self) -> Message:
        try:
            self._channel, answer, self._rest = start_mode(self._connection, "put", self._request)
        except RunnerMissing:
            install_runner.put_runner(self._connection)
            self._channel, answer, self._rest = start_mode(self._connection, "put", self._request)
        return answer

    def _send(self, read: Read, start: int) -> None:
        """Send the bytes from `start` on. A host that has given up meanwhile has said why."""
        done = start
        self._channel.settimeout(SILENT_S)
        with suppress(*CONNECTION_ERRORS):
            for data in blocks(read(start)):
                if self._channel.recv_ready() or self._channel.closed:
                    return
                self._rate.take(len(data))
                send_all(self._channel, data)
                done += len(data)
                self._progress(done)

    def _line(self) -> Message:
        self._channel.settimeout(SILENT_S)
        while b"\n" not in self._rest:
            data = self._channel.recv(4096)
            if not data or len(self._rest) > MAX_HEADER:
                raise WireError("the host ended the session")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return decode_object(line)

    def _check(self, answer: Message) -> None:
        if answer.get("ok") is not True:
            reason = answer.get("reason")
            words = clean_text(answer.get("error") or said("the host does not answer"), 300)
            raise PutRefused(reason if isinstance(reason, str) else "", words)


def blocks(parts: Iterator[bytes], size: int = BLOCK) -> Iterator[memoryview]:
    for part in parts:
        for start in range(0, len(part), size):
            yield memoryview(part)[start : start + size]
