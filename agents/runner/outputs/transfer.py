"""Outputs: lists, sends, takes and deletes the files below one key's output directories (directories.py).

The console asks line by line, and may ask for much ahead: each question is one line of JSON, its answer one or more,
in the same order. After a `write` come the bytes of the file, after the first line of a `read` those that were asked
for. Only plain files count. No link is followed, and each part of a path is opened below the one before it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import signal
import stat
from typing import IO, Any, Callable, Dict, Iterator, List, NoReturn, Tuple

from agents.runner.cache.put import make_room
from agents.runner.cache.store import Cache
from agents.runner.file_access import open_below, words_of, write_all
from agents.runner.files import free_bytes, kept_free
from agents.runner.home import Home, is_run_id
from agents.runner.linux import give_way
from agents.runner.shells.frames import json_line
from agents.runner.wire import MAX_HEADER, OUTPUTS_PREFACE, Message, WireError, decode_object

# How long nothing may move: a disk that hangs, or a console that asks nothing.
PATIENCE_S = 120
BLOCK = 256 * 1024
# Cloud Storage's limit for the name of an object.
MAX_PATH = 1024
MAX_DEPTH = 64
MAX_FILES = 200_000
PART = ".trainyard-part"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

Entry = List[Any]  # path, size, mtime_ns, ctime_ns, inode


def main() -> NoReturn:
    os.write(1, OUTPUTS_PREFACE)
    signal.alarm(PATIENCE_S)
    give_way()  # training, its log and its shells come first
    try:
        with os.fdopen(0, "rb", BLOCK, closefd=False) as source:
            Outputs(source).serve()
    except (WireError, OSError, ValueError, KeyError, TypeError) as error:
        write_all(json_line({"error": words_of(error)}))
        os._exit(1)
    os._exit(0)


class Outputs:
    """One conversation about the directories of one key."""

    def __init__(self, source: IO[bytes]) -> None:
        self.source = source
        request = self.question()
        if request is None or not is_run_id(request["key"]):
            raise ValueError("a key is expected")
        self.home = Home(request["deployment"])
        self.top = os.path.join(self.home.outputs, str(request["key"]))
        self.acts: Dict[str, Callable[[Message], None]] = {
            "list": self.list,
            "read": self.read,
            "have": self.have,
            "room": self.room,
            "write": self.write,
            "drop": self.drop,
        }

    def question(self) -> Message | None:
        line = self.source.readline(MAX_HEADER)
        if not line:
            return None
        if not line.endswith(b"\n"):
            raise WireError("the request is cut, or over %d bytes" % MAX_HEADER)
        return decode_object(line)

    def serve(self) -> None:
        write_all(json_line({"ok": True, "exists": os.path.isdir(self.top)}))
        while True:
            signal.alarm(PATIENCE_S)
            request = self.question()
            if request is None:
                return
            self.acts[request["op"]](request)

    def list(self, request: Message) -> None:
        """Send every file, a line for as many as it holds, then a line with what was left out."""
        left_out: Dict[str, int] = {}
        page: List[Entry] = []
        size = 0
        for entry in walk(self.top, left_out):
            length = len(entry[0].encode()) * 3 + 100  # escaped, as ASCII
            if size + length > MAX_HEADER:
                write_all(json_line({"files": page}))
                signal.alarm(PATIENCE_S)
                page, size = [], 0
            page.append(entry)
            size += length
        write_all(json_line({"files": page, "end": True, "left_out": left_out}))

    def read(self, request: Message) -> None:
        """Send the bytes [from, to) of a file, between a line with its state before and one with its state after."""
        try:
            fd = open_below(self.top, str(request["path"]))
        except (OSError, ValueError) as error:
            write_all(json_line({"error": words_of(error)}))
            return
        try:
            found = os.fstat(fd)
            start = int(request["from"])
            count = max(0, min(found.st_size, int(request["to"])) - start)
            if not stat.S_ISREG(found.st_mode) or start < 0:
                write_all(json_line({"error": "this is not a file"}))
                return
            write_all(json_line({"n": count, "state": state_of(found)}))
            digest = send(fd, start, count)
            write_all(json_line({"sha256": digest, "state": state_of(os.fstat(fd))}))
        finally:
            os.close(fd)

    def have(self, request: Message) -> None:
        """Say whether a file of this size and digest is there."""
        same: List[int] = []
        with contextlib.suppress(OSError, ValueError):
            fd = open_below(self.top, str(request["path"]))
            with os.fdopen(fd, "rb", BLOCK) as file:
                found = os.fstat(fd)
                is_long = stat.S_ISREG(found.st_mode) and found.st_size == request["size"]
                if is_long and digest_of(file) == request["sha256"]:
                    set_time(fd, request.get("mtime_ns"))
                    same = state_of(os.fstat(fd))
        write_all(json_line({"have": bool(same), "state": same}))

    def room(self, request: Message) -> None:
        """Say whether so many bytes may come."""
        base, size = self.home.base, int(request["size"])
        if lack_of_room(base, size):
            make_room(Cache(self.home))
        problem = lack_of_room(base, size)
        write_all(json_line({"error": problem} if problem else {"ok": True}))

    def write(self, request: Message) -> None:
        """Take a file: written beside its place, compared, then renamed. Its bytes are read whatever happens."""
        left = int(request["size"])
        taken = hashlib.sha256()
        # Since `room` was asked, others may have written more than they used to.
        problem, draft = lack_of_room(self.home.base, left, 2), None
        state: List[int] = []
        try:
            if not problem:
                draft = Draft(self.top, str(request["path"]))
        except (OSError, ValueError) as error:
            problem = words_of(error)
        while left > 0:
            data = self.source.read(min(left, BLOCK))
            if not data:
                raise WireError("the file is cut")
            signal.alarm(PATIENCE_S)
            left -= len(data)
            taken.update(data)
            if draft is not None and not problem:
                try:
                    draft.file.write(data)
                except OSError as error:
                    problem = words_of(error)
        if draft is not None:
            problem, state = draft.finish(
                problem, taken.hexdigest() == request["sha256"], request.get("mtime_ns")
            )
        write_all(json_line({"error": problem} if problem else {"ok": True, "state": state}))

    def drop(self, request: Message) -> None:
        """Delete all of the key's directories."""
        aside = os.path.join(self.home.trash, os.urandom(8).hex())
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.top, aside)
        write_all(json_line({"ok": True}))
        signal.alarm(0)
        shutil.rmtree(aside, ignore_errors=True)


class Draft:
    """A file that is being written, below directories that are made for it."""

    def __init__(self, top: str, path: str) -> None:
        parts = parts_of(path)
        os.makedirs(top, mode=0o700, exist_ok=True)
        self.name, self.where = parts[-1], os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts[:-1]:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=self.where)
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                inner = os.open(part, flags, dir_fd=self.where)
                os.close(self.where)
                self.where = inner
            self.part = PART + os.urandom(6).hex()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self.part, flags, 0o644, dir_fd=self.where)
        except BaseException:
            os.close(self.where)
            raise
        self.file = os.fdopen(fd, "wb", 0)

    def finish(self, problem: str, same: bool, mtime_ns: object) -> Tuple[str, List[int]]:
        """Put it into its place: ("", its state). Or (why it was not, [])."""
        try:
            set_time(self.file.fileno(), mtime_ns)
            with contextlib.suppress(OSError):
                self.file.close()
            if not problem and same:
                os.rename(self.part, self.name, src_dir_fd=self.where, dst_dir_fd=self.where)
                return "", state_of(os.stat(self.name, dir_fd=self.where, follow_symlinks=False))
            os.unlink(self.part, dir_fd=self.where)
            return problem or "the file came with other bytes than were announced", []
        except OSError as error:
            return words_of(error), []
        finally:
            os.close(self.where)


def lack_of_room(base: str, size: int, part: int = 1) -> str:
    """Why so many bytes may not be put on this disk: the runs that write there come first. Empty if they may. `part`:
    one such part of what is kept free stays so."""
    while not os.path.isdir(base):  # nothing of this deployment is here yet
        base = os.path.dirname(base)
    free = free_bytes(base)
    if free - size >= kept_free(base) // part:
        return ""
    return "the disk of this host is full: %d MB are to be put there, and %d MB are free" % (
        size >> 20,
        free >> 20,
    )


def set_time(fd: int, mtime_ns: object) -> None:
    """Let the file be as old as it is elsewhere: programs go on from the checkpoint that was written last."""
    if isinstance(mtime_ns, int) and not isinstance(mtime_ns, bool):
        # A file system that cannot have this time still has the file.
        with contextlib.suppress(OSError, OverflowError):
            os.utime(fd, ns=(mtime_ns, mtime_ns))


def walk(top: str, left_out: Dict[str, int]) -> Iterator[Entry]:
    """Every plain file below, in a stable order. `left_out` counts what is none, by kind."""
    todo = [""]
    count = 0
    while todo:
        path = todo.pop()
        try:
            fd = open_below(top, path)
        except (OSError, ValueError) as error:
            if not is_gone(error):
                left_out["unreadable"] = left_out.get("unreadable", 0) + 1
            continue
        try:
            for kind, name, state in scan(fd):
                inner = "%s/%s" % (path, name) if path else name
                if kind != "other" and not is_name(inner):
                    kind = "names"
                elif kind == "file" and count >= MAX_FILES:
                    kind = "too_many"
                if kind == "directory":
                    todo.append(inner)
                elif kind == "file":
                    count += 1
                    yield [inner, *state]
                elif not name.startswith(PART):
                    left_out[kind] = left_out.get(kind, 0) + 1
        finally:
            os.close(fd)


def is_gone(error: Exception) -> bool:
    """Whether it was deleted meanwhile, or replaced by a link or a file. What is there and cannot be read is not."""
    return isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def scan(fd: int) -> List[Tuple[str, str, List[int]]]:
    """(kind, name, state) of each entry of a directory."""
    found: List[Tuple[str, str, List[int]]] = []
    for name in sorted(os.listdir(fd)):
        if name.startswith(PART):
            continue
        try:
            state = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError as error:
            if not is_gone(error):
                found.append(("unreadable", name, []))
            continue
        found.append((kind_of(state.st_mode), name, state_of(state)))
    return found


def kind_of(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISREG(mode):
        return "file"
    return "links" if stat.S_ISLNK(mode) else "other"


def state_of(found: os.stat_result) -> List[int]:
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def is_name(path: str) -> bool:
    """Whether an object can have this name: text without control characters, not too long."""
    try:
        encoded = path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return len(encoded) <= MAX_PATH and path.count("/") <= MAX_DEPTH and not _CONTROL.search(path)


def parts_of(path: str) -> List[str]:
    parts = path.split("/")
    if len(parts) < 2 or any(part in ("", ".", "..") or part.startswith(PART) for part in parts):
        raise ValueError("a path below a bucket is expected")
    if not is_name(path):
        raise ValueError("this cannot be the name of a file")
    return parts


def send(fd: int, start: int, count: int) -> str:
    """Send so many bytes, and return their digest. What the file has lost meanwhile is sent as zeros: the state that
    follows tells that it changed."""
    digest = hashlib.sha256()
    os.lseek(fd, start, os.SEEK_SET)
    while count > 0:
        try:
            data = os.read(fd, min(count, BLOCK))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""
        data = data or bytes(min(count, BLOCK))
        digest.update(data)
        write_all(data)
        signal.alarm(PATIENCE_S)
        count -= len(data)
    return digest.hexdigest()


def digest_of(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while True:
        data = file.read(BLOCK)
        if not data:
            return digest.hexdigest()
        digest.update(data)
        signal.alarm(PATIENCE_S)
