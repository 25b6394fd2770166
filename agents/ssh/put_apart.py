"""Puts a large file into the cache of a host from a process of its own, which gives way to everything else.

To seal packets takes Python's lock and the processor for as long as the file is large: in the dispatcher, each line of
a log would wait for that several times on its way. The process is given the bytes on its stdin and knows neither the
database nor the storage. A small file is put without it: to start a process takes longer.

The process says in lines of JSON what it does. It dies with the thread that started it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import paramiko

from agents.runner.linux import die_with_parent, give_way
from agents.ssh.dial import DialError
from agents.ssh.put import Blob, Progress, PutRefused, PutStopped, Rate, Read, blocks, put_blob
from agents.ssh.targets import Jump, Target

# A smaller file is shipped in a second even by the slowest thread.
SMALL_BYTES = 8 << 20
# A tenth of the processor that others get. With 19 a file would not arrive while anything else is busy.
NICE = 10
PIPE_BYTES = 1 << 20
BLOCK = 256 * 1024
END_S = 5.0


def put(
    target: Target,
    key: str,
    deployment: str,
    blob: Blob,
    read: Read,
    rate: Rate,
    progress: Progress = lambda done: None,
) -> None:
    """As put_blob. `key`: the text of the private key, as OpenSSH writes it."""
    if blob.size <= SMALL_BYTES:
        put_blob(target, _key_of(key), deployment, blob, read, rate, progress)
        return
    request = {
        "parent": os.getpid(),
        "target": dataclasses.asdict(target),
        "key": key,
        "deployment": deployment,
        "blob": dataclasses.asdict(blob),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
        bufsize=0,
    )
    try:
        _Feeding(process, rate, progress).run(request, read)
    finally:
        process.kill()
        process.wait(END_S)
        for end in (process.stdin, process.stdout):
            with suppress(OSError):
                cast(BinaryIO, end).close()


def _key_of(text: str) -> paramiko.PKey:
    return paramiko.Ed25519Key.from_private_key(io.StringIO(text))


class _Feeding:
    """This side of the process."""

    def __init__(self, process: subprocess.Popen[bytes], rate: Rate, progress: Progress) -> None:
        self._rate, self._progress = rate, progress
        self._into, self._from = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)

    def run(self, request: dict[str, Any], read: Read) -> None:
        with suppress(BrokenPipeError):
            _write_all(self._into.fileno(), memoryview(json.dumps(request).encode() + b"\n"))
        # Buffered: a line is read byte by byte otherwise.
        with io.BufferedReader(cast(io.RawIOBase, self._from)) as lines:
            for line in lines:
                said = json.loads(line)
                if "from" in said:
                    self._feed(read, said["from"])
                elif "done" in said:
                    self._progress(said["done"])
                elif "ok" in said:
                    return
                else:
                    _raise(said)
        raise PutRefused("cut", "the process that shipped the file has ended")

    def _feed(self, read: Read, start: int) -> None:
        """A process that has given up meanwhile says why in its next line."""
        done = start
        with suppress(OSError):
            fcntl.fcntl(self._into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        for data in blocks(read(start), BLOCK):
            self._rate.take(len(data))
            try:
                _write_all(self._into.fileno(), data)
            except BrokenPipeError:
                return
            done += len(data)
            self._progress(done)


def _write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _raise(said: dict[str, Any]) -> None:
    if "reason" in said:
        raise PutRefused(said["reason"], said["error"])
    raise DialError(said["error"])


# -- the process --


def main() -> None:
    die_with_parent()
    give_way(NICE)
    request = json.loads(_first_line(0))
    if os.getppid() != request["parent"]:
        return
    try:
        _put(request)
    except PutRefused as error:
        _say(error=str(error), reason=error.reason)
    except DialError as error:
        _say(error=str(error))
    else:
        _say(ok=True)


def _first_line(fd: int) -> bytes:
    """The first line, and nothing of what follows."""
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(fd, 1)
        if not data:
            raise EOFError
        line += data
    return line


def _put(request: dict[str, Any]) -> None:
    where = request["target"]
    target = Target(**{**where, "jumps": tuple(Jump(**jump) for jump in where["jumps"])})
    blob = Blob(**request["blob"])
    is_sending = False

    def read(start: int) -> Iterator[bytes]:
        nonlocal is_sending
        is_sending = True
        _say(**{"from": start})
        left = blob.size - start
        while left:
            data = os.read(0, min(BLOCK, left))
            if not data:
                raise PutStopped
            left -= len(data)
            yield data

    def progress(done: int) -> None:
        if not is_sending:
            _say(done=done)

    with suppress(PutStopped):
        put_blob(target, _key_of(request["key"]), request["deployment"], blob, read, Rate(0), progress)


def _say(**words: Any) -> None:
    _write_all(1, memoryview(json.dumps(words).encode() + b"\n"))


if __name__ == "__main__":
    main()
