"""Files: lists a directory of a run, or sends one of its files. Only what lies below its work directory.

One line of JSON in, one line out, then the bytes of the file. Each part of a path is opened below the one before it,
and no link is followed: a link that a job leaves behind cannot lead to a file that is none of the job's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
from typing import Any, Dict, List, NoReturn

from agents.runner.files import read_line
from agents.runner.home import Home
from agents.runner.runs.facts import load_facts
from agents.runner.shells.frames import json_line
from agents.runner.wire import FILES_PREFACE, MAX_HEADER, Message, WireError, decode_object

# A disk that does not answer must not keep this process for ever.
LIST_S, READ_S = 20, 900
MAX_ENTRIES = 1000
MAX_BYTES = 256 << 20
BLOCK = 256 * 1024


def main() -> NoReturn:
    os.write(1, FILES_PREFACE)
    signal.alarm(LIST_S)
    try:
        request = decode_object(read_line(0))
        fd = open_below(work_of(request), str(request.get("path") or ""))
        if request["op"] == "list":
            os.write(1, json_line(listing(fd)))
        else:
            send(fd)
    except (WireError, OSError, ValueError, KeyError, TypeError) as error:
        os.write(1, json_line({"error": words_of(error)}))
        os._exit(1)
    os._exit(0)


def words_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "It is a link, or lies behind one. Links are not followed."
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "%s" % (error or repr(error))


def work_of(request: Message) -> str:
    facts = load_facts(Home(request["deployment"]).run(request["run"]))
    if facts is None or not facts["work"]:
        raise ValueError("the run is not on this host any more")
    return str(facts["work"])


def open_below(top: str, path: str) -> int:
    """A descriptor of what lies there. Raises OSError or ValueError."""
    parts = [part for part in path.split("/") if part]
    if ".." in parts or "\0" in path:
        raise ValueError("a path below the work directory is expected")
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        # A pipe that nobody writes into would be waited for.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            inner = os.open(part, flags, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def listing(fd: int) -> Dict[str, Any]:
    """The entries of a directory, sorted by name, as many as an answer holds."""
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        raise ValueError("this is not a directory")
    found: List[Dict[str, Any]] = []
    left = MAX_HEADER - 200
    names = sorted(os.listdir(fd))
    for name in names:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            continue  # a name that is no text cannot be asked for
        with contextlib.suppress(OSError):
            facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
            entry = {
                "name": name,
                "kind": kind_of(facts.st_mode),
                "size": facts.st_size,
                "changed": facts.st_mtime,
            }
            left -= len(json_line(entry)) + 2
            if left < 0 or len(found) >= MAX_ENTRIES:
                break
            found.append(entry)
    return {"ok": True, "entries": found, "more": len(names) - len(found)}


def kind_of(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "directory"
    return "file" if stat.S_ISREG(mode) else "link" if stat.S_ISLNK(mode) else "other"


def send(fd: int) -> None:
    """Send a file of the size that it has now."""
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError("this is not a file")
    if facts.st_size > MAX_BYTES:
        raise ValueError("it has more than %d MiB: copy it from the shell" % (MAX_BYTES >> 20))
    signal.alarm(READ_S)
    write_all(json_line({"ok": True, "size": facts.st_size}))
    left = facts.st_size
    while left > 0:
        data = os.read(fd, min(left, BLOCK))
        if not data:
            os._exit(1)  # it has become shorter: the connection ends before all has come
        write_all(data)
        left -= len(data)


def write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]
