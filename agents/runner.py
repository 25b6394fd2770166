"""The runner: Trainyard's one program on a host. One file, only the standard library, Python 3.7 or newer, Linux.

It keeps processes alive without an SSH connection, says what became of them, and ships their logs. It decides
nothing about jobs. The console imports the wire section from here, so that both ends always speak the same language.
`agents/README.md` tells the wire, the host's directory layout and a run's life in full.

Who is who on a host, from the outside in:

    serve ── one per connection; reads orders, sends facts and logs; may die at any moment, nobody minds
    outer keeper ── forked from serve, a session of its own; holds the run's lock; waits for the inner one
      inner keeper ── starts the replica, waits for it, writes its facts, stops it, bounds its log
        replica ── the command, in a session of its own, writing straight into its log file

Both keepers are child subreapers: whoever of them is killed, the other one inherits the replica and its true exit.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import errno
import fcntl
import functools
import gc
import hashlib
import json
import math
import mmap
import os
import platform
import pwd
import re
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback
import tty
import zlib
from typing import Any, Callable, Deque, Dict, Iterator, List, NamedTuple, NoReturn, Set, Tuple

# ---------------------------------------------------------------------------------------------------------------------
# The wire: one line of JSON, then as many raw bytes as its "n" says. Both directions, both ends.
# ---------------------------------------------------------------------------------------------------------------------

PROTOCOL = 1
MAX_HEADER = 64 * 1024
MAX_PAYLOAD = 8 * 1024 * 1024
# Login shells may print before us (motd, rc files). More junk than this is not a greeting but another program.
MAX_JUNK = 64 * 1024
PREFACE = b"TRAINYARD-RUNNER 1\n"
SHELL_PREFACE = b"TRAINYARD-SHELL 1\n"

Message = Dict[str, Any]


class WireError(Exception):
    """The other end broke the framing. Nothing after this point of the stream can be trusted: close it."""


def encode(message: Message, payload: bytes = b"") -> bytes:
    """The bytes of one message on the wire."""
    if payload:
        if len(payload) > MAX_PAYLOAD:
            raise WireError("a payload of %d bytes is over the limit of %d" % (len(payload), MAX_PAYLOAD))
        message = dict(message, n=len(payload))
    line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
    if len(line) > MAX_HEADER:
        raise WireError("a message line of %d bytes is over the limit of %d" % (len(line), MAX_HEADER))
    return line + payload


def _refuse_constant(text: str) -> Any:
    raise ValueError("%s is not JSON" % text)


def _bounded_int(text: str) -> int:
    # int() of a digit string takes quadratic time: a line full of digits must not buy a second of our time.
    if len(text) > 20:
        raise ValueError("a number of %d digits" % len(text))
    return int(text)


def _finite_float(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise ValueError("a number out of range")
    return value


def decode_object(line: bytes) -> Message:
    """One JSON object, strictly: no NaN, no giant numbers, no other type. Raises WireError."""
    try:
        value = json.loads(
            line.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_int=_bounded_int,
            parse_float=_finite_float,
        )
    except (ValueError, RecursionError) as error:
        raise WireError("not a JSON line: %s" % error) from None
    if not isinstance(value, dict):
        raise WireError("not a JSON object but %s" % type(value).__name__)
    return value


class Decoder:
    """Bytes in, whole messages out. Holds at most one unfinished message; never blocks, never guesses.

    With `preface=True` it first skips whatever a login shell printed, up to the runner's first line.
    """

    def __init__(self, preface: bool = False) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._scanned = 0
        self._message: Message | None = None
        self._junk = 0
        self._broken: str | None = None
        self.greeted = not preface

    def feed(self, data: bytes) -> List[Tuple[Message, bytes]]:
        """All messages completed by `data`.

        What came whole before the framing broke is still handed out; a WireError is raised when there is nothing
        (more) to hand out, and then for ever.
        """
        if self._broken is not None:
            raise WireError(self._broken)
        self._buffer += data
        found: List[Tuple[Message, bytes]] = []
        try:
            while self._step(found):
                pass
        except WireError as error:
            self._broken = str(error)
            self._buffer.clear()
            if not found:
                raise
            return found
        del self._buffer[: self._at]
        self._scanned -= self._at
        self._at = 0
        return found

    def _step(self, found: List[Tuple[Message, bytes]]) -> bool:
        if self._message is None:
            line = self._line()
            if line is None:
                return False
            if not self.greeted:
                self._skip(line)
                return True
            message = decode_object(line)
            size = message.pop("n", 0)
            if type(size) is not int or not 0 <= size <= MAX_PAYLOAD:
                raise WireError("a payload length of %.40r" % (size,))
            if type(message.get("t")) is not str:
                raise WireError("a message without a type")
            self._message, self._need = message, size
        if len(self._buffer) - self._at < self._need:
            return False
        found.append((self._message, bytes(self._buffer[self._at : self._at + self._need])))
        self._at += self._need
        self._scanned = max(self._scanned, self._at)
        self._message = None
        return True

    def _line(self) -> bytes | None:
        start = max(self._at, self._scanned)
        end = self._buffer.find(b"\n", start)
        length = (len(self._buffer) if end < 0 else end + 1) - self._at
        if length > MAX_HEADER:
            raise WireError("a message line of more than %d bytes" % MAX_HEADER)
        if end < 0:
            self._scanned = len(self._buffer)
            return None
        line = bytes(self._buffer[self._at : end])
        self._at = self._scanned = end + 1
        return line

    def _skip(self, line: bytes) -> None:
        # A prompt without a newline may stand before the preface on the same line.
        if (line + b"\n").endswith(PREFACE):
            self.greeted = True
            return
        self._junk += len(line) + 1
        if self._junk > MAX_JUNK:
            raise WireError("%d bytes of other output, but no runner" % self._junk)


DIGEST_BLOCK = 8 * 1024 * 1024


def digest_of_blocks(blocks: List[bytes]) -> str:
    """The digest of a log from the SHA-256 of each of its 8 MiB blocks (the last one may be shorter).

    Blocks, because SHA-256 cannot be stopped and gone on with in another process, but a list of finished blocks can.
    """
    if not blocks:
        return "sha256:" + hashlib.sha256().hexdigest()
    if len(blocks) == 1:
        return "sha256:" + blocks[0].hex()
    return "blocks8m:" + hashlib.sha256(b"".join(blocks)).hexdigest()


class LogDigest:
    """The digest of a log whose bytes come in order, in pieces of any size. `blocks` are those finished before."""

    def __init__(self, blocks: List[bytes] | None = None) -> None:
        self.blocks = list(blocks or [])
        self.size = len(self.blocks) * DIGEST_BLOCK
        self._open = hashlib.sha256()

    def update(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            room = DIGEST_BLOCK - self.size % DIGEST_BLOCK
            piece = view[:room]
            self._open.update(piece)
            self.size += len(piece)
            view = view[room:]
            if len(piece) == room:
                self.blocks.append(self._open.digest())
                self._open = hashlib.sha256()

    def value(self) -> str:
        partial = [self._open.digest()] if self.size % DIGEST_BLOCK else []
        return digest_of_blocks(self.blocks + partial)


def log_digest(data: bytes) -> str:
    """The digest of a whole log in memory."""
    digest = LogDigest()
    digest.update(data)
    return digest.value()


# ---------------------------------------------------------------------------------------------------------------
# Failpoints: named places where a test may kill or freeze the process that comes by. Nothing in production.
# ---------------------------------------------------------------------------------------------------------------

RUNNER_FAILPOINTS = (
    "after_mkdir",  # serve: the claim stands, nobody holds its lock yet
    "after_lock",  # serve: before the keeper is forked
    "before_reply",  # serve: before a fact is sent
    "after_tombstone",  # serve: directory made, no fact in it yet
    "before_delete",  # serve: forget was asked, nothing deleted yet
    "keeper_born",  # outer keeper: nothing written yet
    "after_gpu_lock",  # outer keeper
    "after_order",  # outer keeper: all is prepared, the inner keeper not forked yet
    "before_gate",  # inner keeper: the replica's process exists but may not exec yet
    "after_gate",  # inner keeper: the replica may run, nobody has written so
    "before_started",  # inner keeper: it runs, the fact is not written yet
    "after_started",
    "between_term_and_kill",
    "before_ended",  # whichever keeper works: the replica is over, nothing is written
    "before_reap",  # its exit is written, the zombie still there
    "before_closed",  # the tree is empty, GPUs are free, the last fact not written
    "after_closed",
)


def failpoint(name: str) -> None:
    """Die (or stop) here if TRAINYARD_FAILPOINT says so: "name[:stop]", or a directory that holds a file `name`.

    A file is removed before it fires, so that whoever takes over comes through.
    """
    armed = os.environ.get("TRAINYARD_FAILPOINT", "")
    if not armed:
        return
    act = "kill"
    if "/" in armed:
        path = os.path.join(armed, name)
        try:
            with open(path) as file:
                act = file.read().strip() or "kill"
            os.unlink(path)
        except OSError:
            return
    else:
        wanted, _, act = armed.partition(":")
        if wanted != name:
            return
    os.kill(os.getpid(), signal.SIGSTOP if act == "stop" else signal.SIGKILL)


# ---------------------------------------------------------------------------------------------------------------
# Linux, through ctypes: what the standard library of Python 3.7 does not offer.
# ---------------------------------------------------------------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_SYS_PIDFD_SEND_SIGNAL, _SYS_PIDFD_OPEN = 424, 434  # the same numbers on every architecture
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
IN_MODIFY, IN_MOVED_TO, IN_DELETE_SELF, IN_Q_OVERFLOW, IN_IGNORED = 0x2, 0x80, 0x400, 0x4000, 0x8000


def become_subreaper() -> None:
    """From now on, orphans below this process become its children instead of init's."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def punch_hole(fd: int, start: int, length: int) -> bool:
    """Give a range's disk blocks back; offsets and size stay. False where the file system cannot."""
    done: int = _libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_long(start), ctypes.c_long(length))
    return done == 0


def send_exactly(pid: int, ticks: int, signum: int) -> str:
    """Signal a process, never a stranger who got its number since. Answers "sent", "gone" or "denied".

    The pidfd pins the process down first; only then are its start ticks compared.
    """
    fd: int = _libc.syscall(_SYS_PIDFD_OPEN, pid, 0)
    if fd < 0 and ctypes.get_errno() == errno.ESRCH:
        return "gone"
    try:
        found = read_process(pid)
        if found is None or found.ticks != ticks:
            return "gone"
        try:
            if fd < 0:  # a kernel before 5.3, or a filter that forbids it: the window is microseconds wide
                os.kill(pid, signum)
            elif _libc.syscall(_SYS_PIDFD_SEND_SIGNAL, fd, signum, None, 0) != 0:
                raise OSError(ctypes.get_errno(), "pidfd_send_signal")
        except OSError as error:
            return "gone" if error.errno == errno.ESRCH else "denied"
        return "sent"
    finally:
        if fd >= 0:
            os.close(fd)


def retitle(title: str) -> None:
    """Show `title` in ps. Keepers are forked, and would else all look like the serve that they came from."""
    _libc.prctl(_PR_SET_NAME, ctypes.c_char_p(title.encode()[:15]), 0, 0, 0)
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
        start, end = int(fields[45]), int(fields[46])  # arg_start, arg_end: our own argv in our own memory
    except (OSError, ValueError, IndexError):
        return
    room = end - start
    if 0 < room < 1 << 20:
        ctypes.memmove(start, title.encode()[: room - 1].ljust(room, b"\0"), room)


class Inotify:
    """Directory watches as numbered events, or nothing at all where the kernel gives no more of them."""

    def __init__(self) -> None:
        self.fd = -1
        if not os.environ.get("TRAINYARD_NO_INOTIFY"):
            self.fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def watch(self, path: str, mask: int) -> int:
        if self.fd < 0:
            return -1
        found: int = _libc.inotify_add_watch(self.fd, os.fsencode(path), mask)
        return found

    def unwatch(self, watch: int) -> None:
        if self.fd >= 0 and watch >= 0:
            _libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> Iterator[Tuple[int, int]]:
        """(watch, mask) of everything that happened."""
        while True:
            try:
                data = os.read(self.fd, 65536)
            except (BlockingIOError, InterruptedError):
                return
            at = 0
            while at < len(data):
                watch, mask, _cookie, length = struct.unpack_from("iIII", data, at)
                at += 16 + length
                yield watch, mask


@functools.lru_cache(maxsize=None)
def boot_id() -> str:
    """No process sees two of them."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def booted_at() -> float:
    """Wall time of the boot, as the clock stands now."""
    return time.time() - time.clock_gettime(7)  # CLOCK_BOOTTIME


# ---------------------------------------------------------------------------------------------------------------
# Files: names that are safe as names, documents that are whole or absent, also when the disk is full.
# ---------------------------------------------------------------------------------------------------------------

_RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,79}\Z")
_DEPLOYMENT = re.compile(r"[a-z0-9-]{1,40}\Z")
# MIG devices of older drivers are named MIG-GPU-<uuid>/<instance>/<instance>.
_GPU = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._:/-]{0,119}\Z")
SCHEMA = 1
SPARES = 4  # one for each fact that may still have to be told: running, stopping, ended, closed
SPARE_BYTES = 16 * 1024


class Home:
    """Where things are on this host: everything below ~/.trainyard."""

    def __init__(self, deployment: str) -> None:
        if not _DEPLOYMENT.match(deployment):
            raise ValueError("a deployment is named by 1 to 40 of a-z, 0-9 and -")
        self.root = os.path.join(os.path.expanduser("~"), ".trainyard")
        self.deployment = deployment
        self.base = os.path.join(self.root, deployment)
        self.runs = os.path.join(self.base, "runs")
        self.work = os.path.join(self.base, "work")
        self.trash = os.path.join(self.base, "trash")
        self.gpus = os.path.join(self.root, "gpus")
        self.forgotten = os.path.join(self.base, "forgotten")
        self.owner = os.path.join(self.base, "owner")
        self.epoch = os.path.join(self.base, "epoch")
        self.mark = os.path.join(self.base, "mark")

    def make(self) -> None:
        """Without a look into what exists already: the work directories may be on a disk that does not answer."""
        for path in (self.root, self.base, self.runs, self.work, self.trash, self.gpus):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)

    def gpu_lock(self, gpu: str) -> str:
        return os.path.join(self.gpus, re.sub("[/:]", "_", gpu) + ".lock")

    def run(self, run: str) -> str:
        """A run's directory. The check stands here, where the name becomes a path."""
        if not is_run_id(run):
            raise ValueError("not a run id: %.100r" % (run,))
        return os.path.join(self.runs, run)


def is_run_id(value: object) -> bool:
    return isinstance(value, str) and _RUN_ID.match(value) is not None


def read_plain(path: str, most: int) -> bytes:
    """A plain file's bytes. A pipe or a link that a replica put in its place is an OSError, and never waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", path)
        return file.read(most) or b""


_STRICT = json.JSONDecoder(parse_constant=_refuse_constant)


def read_json(path: str) -> Dict[str, Any] | None:
    """The document, or None when there is none, or none that is whole and could be told again."""
    try:
        value = _STRICT.decode(read_plain(path, 1 << 24).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def whole(value: Any, most: int = 1 << 53) -> int:
    """An offset or a count that was read back. A replica may write into its run's directory: nonsense is lost state."""
    return value if type(value) is int and 0 <= value <= most else 0


def read_cut(directory: str) -> Tuple[int, List[List[int]]]:
    """(generation, holes) of what the keeper punched out of a log."""
    found = read_json(os.path.join(directory, "log.cut")) or {}
    holes = found.get("holes")
    holes = holes if isinstance(holes, list) and len(holes) < 1000 else []
    ranges = [[whole(h[0]), whole(h[1])] for h in holes if isinstance(h, list) and len(h) == 2]
    return whole(found.get("generation")), sorted(r for r in ranges if r[0] < r[1])


def read_deadline(directory: str) -> float | None:
    """When a stop that was asked for is to be over, on this boot's monotonic clock. None: none was asked for."""
    found = read_json(os.path.join(directory, "stop.json"))
    if found is None:
        return None
    deadline = found.get("deadline")
    return float(deadline) if isinstance(deadline, (int, float)) and 0 <= deadline < 1e12 else 0.0


def fsync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(path: str, data: bytes, durable: bool = False) -> None:
    """Replace a file as a whole: a reader, or a crash, meets the old content or the new one, never a part."""
    temporary = "%s.new.%d" % (path, os.getpid())
    try:
        _fill(temporary, os.O_CREAT | os.O_TRUNC, data, durable)
        os.rename(temporary, path)
    except OSError:
        _unlink(temporary)
        raise


def _fill(path: str, flags: int, data: bytes, durable: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if not flags & os.O_TRUNC:
            os.ftruncate(fd, len(data))
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def make_spares(directory: str) -> None:
    """Disk space set aside for a run's last words: files that exist already and only have to be overwritten."""
    for number in range(SPARES):
        path = os.path.join(directory, "spare.%d" % number)
        if not os.path.exists(path):
            _fill(path, os.O_CREAT | os.O_TRUNC, bytes(SPARE_BYTES), False)


def write_with_spares(directory: str, name: str, data: bytes, durable: bool) -> None:
    """write_file, but on a full disk into one of the spares. Raises OSError when not even that helps."""
    path = os.path.join(directory, name)
    try:
        write_file(path, data, durable)
        return
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        problem = error
    for number in range(SPARES):
        spare = os.path.join(directory, "spare.%d" % number)
        try:
            _fill(spare, 0, data, durable)
            os.rename(spare, path)
            return
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = error
            _unlink(spare)  # a copy-on-write file system wants new blocks: this gives some back
    raise problem


def disk_floor() -> int:
    """A host with less than this free starts nothing: it could not even say how it ended."""
    return int(os.environ.get("TRAINYARD_FLOOR_MB") or 16) << 20


def free_bytes(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


# ---------------------------------------------------------------------------------------------------------------
# Facts: what is known about one run, a document that only grows. Every version of the runner reads every other's.
# ---------------------------------------------------------------------------------------------------------------

Facts = Dict[str, Any]


def new_facts(run: str, mark: str = "") -> Facts:
    return {
        "schema": SCHEMA,
        "run": run,
        "phase": "claimed",
        "boot_id": boot_id(),
        "claimed_at": time.time(),
        "started_at": None,
        "stopping_at": None,
        "ended_at": None,
        "closed_at": None,
        "seconds": None,
        "exit_code": None,
        "exit_signal": None,
        "why": None,
        "refusal": None,
        "message": "",
        "oom": None,
        "never_started": None,
        "pid": None,
        "ticks": None,
        "mono_started": None,
        "containment": "subreaper",
        "cgroup": None,
        "memory_cgroup": None,
        "memory_mb": None,
        "memory_enforced": None,
        "oom_sure": None,
        "mark": mark,
        "work_key": None,
        "log": {"size": 0, "final": False, "digest": None},
        "survivors": [],
        "busy": {},
    }


MAX_FACTS = MAX_HEADER // 2


def _size_of(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


_NONE, _NUMBER = type(None), (int, float, type(None))
# Of what kind a fact must be for us to go on with it.
_KINDS: Dict[str, Any] = dict(
    dict.fromkeys(("claimed_at", "started_at", "ended_at", "closed_at", "seconds", "mono_started"), _NUMBER),
    **dict.fromkeys(("exit_code", "exit_signal", "pid", "ticks"), (int, _NONE)),
    **dict.fromkeys(("boot_id", "message", "mark", "work"), str),
    **dict.fromkeys(("cgroup", "memory_cgroup", "work_key"), (str, _NONE)),
    **dict.fromkeys(("survivors", "gpus"), list),
    **dict.fromkeys(("log", "busy"), dict),
)  # fmt: skip


def load_facts(directory: str) -> Facts | None:
    """A run's facts with every key that this version knows, and all that another version added."""
    path = os.path.join(directory, "facts.json")
    found = read_json(path)
    if found is None or not isinstance(found.get("phase"), str):
        return None
    facts = new_facts(os.path.basename(directory))
    facts.update({"boot_id": "", "claimed_at": None})
    # Escaped, a text may be six times as long. Somebody has been at it by hand then: keep what we know, short.
    if _size_of(path) > MAX_FACTS // 6 and len(json.dumps(found)) > MAX_FACTS:
        found = {key: found[key] for key in found.keys() & facts.keys() if len(json.dumps(found[key])) < 4096}
        found.setdefault("phase", "claimed")
    for key, value in found.items():
        if key not in _KINDS or isinstance(value, _KINDS[key]) and not isinstance(value, bool):
            facts[key] = value
    facts["log"] = dict(facts["log"], size=whole(facts["log"].get("size")))
    return facts


def save_facts(directory: str, facts: Facts, durable: bool = False) -> None:
    facts["message"] = facts["message"][:2000]
    data = json.dumps(facts, separators=(",", ":")).encode("ascii")
    write_with_spares(directory, "facts.json", data, durable)


def close_unstarted(facts: Facts, why: str, message: str, refusal: str | None = None) -> Facts:
    """The facts of a run whose command was never executed, and never will be."""
    facts.update(
        phase="closed", why=why, refusal=refusal, message=message, never_started=True, closed_at=time.time()
    )
    facts["log"] = dict(facts["log"], final=True)
    return facts


# ---------------------------------------------------------------------------------------------------------------
# Orders: what is to be run, checked to the last character before anything is made of it.
# ---------------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """This run cannot be started here; `refusal` is the wire's word for it."""

    def __init__(self, refusal: str, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


class Order(NamedTuple):
    command: List[str]
    env: Dict[str, str]
    files: Dict[str, str]
    gpus: List[str]
    port: int | None
    work_key: str | None
    grace_s: float
    timeout_s: float | None
    mark: str
    memory_mb: int | None
    log_budget_mb: int
    web_access: bool


def unpack_order(payload: bytes, packed: bool) -> Dict[str, Any]:
    """The order's document. A small packed payload that unpacks to something huge is refused, not unpacked."""
    if packed:
        unpacker = zlib.decompressobj()
        try:
            payload = unpacker.decompress(payload, MAX_PAYLOAD)
        except zlib.error as error:
            raise Refused("bad_order", "the order cannot be unpacked: %s" % error) from None
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise Refused("bad_order", "the order is over %d bytes, or cut" % MAX_PAYLOAD)
    try:
        return decode_object(payload)
    except WireError as error:
        raise Refused("bad_order", "the order is %s" % error) from None


def parse_order(found: Dict[str, Any]) -> Order:
    """An Order, or Refused naming the field. Unknown keys are a newer console's, and ignored."""

    def bad(field: str, why: str) -> Refused:
        return Refused("bad_order", "%s: %s" % (field, why))

    def text(field: str, value: Any) -> str:
        if not isinstance(value, str):
            raise bad(field, "must be text")
        if "\0" in value:
            raise bad(field, "must not contain a NUL character")
        try:
            os.fsencode(value)
        except UnicodeError:
            raise bad(field, "cannot be encoded") from None
        return value

    def number(field: str, low: float, high: float, default: float | None) -> float | None:
        value = found.get(field)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise bad(field, "must be a number from %g to %g" % (low, high))
        return value

    def whole(field: str, low: int, high: int, default: int | None) -> int | None:
        value = number(field, low, high, default)
        return None if value is None else int(value)

    def mapping(field: str) -> Dict[str, str]:
        value = found.get(field) or {}
        if not isinstance(value, dict):
            raise bad(field, "must be an object")
        return {text(field, key): text("%s[%.80s]" % (field, key), item) for key, item in value.items()}

    command, gpus = found.get("command"), found.get("gpus") or []
    if not isinstance(command, list) or not command:
        raise bad("command", "must be a list of at least one text")
    if not isinstance(gpus, list) or not all(isinstance(g, str) and _GPU.match(g) for g in gpus):
        raise bad("gpus", "must be a list of GPU UUIDs")
    env = mapping("env")
    for name in env:
        if not name or "=" in name:
            raise bad("env", "%.80r cannot be the name of a variable" % name)
    files = mapping("files")
    for name in files:
        if name.startswith("/") or any(part in ("", ".", "..") for part in name.split("/")):
            raise bad("files", "%.80r must stay inside the work directory" % name)
    work_key = found.get("work_key")
    if work_key is not None and not is_run_id(work_key):
        raise bad("work_key", "%.80r is not a plain name" % (work_key,))
    return Order(
        command=[text("command", part) for part in command],
        env=env,
        files=files,
        gpus=list(dict.fromkeys(gpus)),
        port=whole("port", 1, 65535, None),
        work_key=work_key,
        grace_s=float(number("grace_s", 0, 1e7, 10) or 0),
        timeout_s=number("timeout_s", 0, 1e9, None),
        mark=text("mark", found.get("mark") or "")[:200],
        memory_mb=whole("memory_mb", 1, 1 << 40, None),
        log_budget_mb=int(number("log_budget_mb", 1, 1 << 40, 4096) or 4096),
        web_access=found.get("web_access") is True,
    )


# A login's leftovers that would tell a replica lies about itself.
_NOT_FOR_REPLICAS = {"SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_AUTH_SOCK", "SSH_ORIGINAL_COMMAND"} | {
    "OLDPWD", "SHLVL", "_", "TRAINYARD_FAILPOINT", "TRAINYARD_NO_INOTIFY", "TRAINYARD_NO_CGROUP", "TRAINYARD_FLOOR_MB",
    "TRAINYARD_GPU_ROOT", "TRAINYARD_GPU_LOOK_S", "TRAINYARD_STORAGE_S",
}  # fmt: skip


def build_env(order: Order, run: str, work: str, mark: str) -> Dict[str, str]:
    """The replica's whole environment: the login's, then the order's, then what only the host knows."""
    env = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_REPLICAS}
    user = pwd.getpwuid(os.getuid())
    env.setdefault("HOME", user.pw_dir)
    env.setdefault("USER", user.pw_name)
    env.setdefault("LOGNAME", user.pw_name)
    env.setdefault("SHELL", user.pw_shell or "/bin/sh")
    env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    env.setdefault("LANG", "C.UTF-8")
    env.update({name: value.replace("@WORK@", work) for name, value in order.env.items()})
    env["CUDA_VISIBLE_DEVICES"] = ",".join(order.gpus)  # last: nobody widens this by an env of their own
    env.update(PWD=work, TRAINYARD_RUN=run, TRAINYARD_WORK=work, TRAINYARD_MARK=mark)
    return env


# ---------------------------------------------------------------------------------------------------------------
# Processes: who is below whom, who carries a run's mark, and how to end them all without missing one.
# ---------------------------------------------------------------------------------------------------------------


class Process(NamedTuple):
    pid: int
    parent: int
    state: str
    ticks: int  # start time in clock ticks since boot: with the boot id and the pid, an identity


def read_process(pid: int) -> Process | None:
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            # The name in parentheses may itself hold spaces and parentheses: count from the last one.
            fields = file.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return Process(pid, int(fields[1]), fields[0].decode("ascii"), int(fields[19]))


def all_processes() -> Dict[int, Process]:
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def descendants(roots: Set[int], everyone: Dict[int, Process]) -> Set[int]:
    """All below `roots`, without them."""
    children: Dict[int, List[int]] = {}
    for process in everyone.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: Set[int] = set()
    todo = list(roots)
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in found:
                found.add(pid)
                todo.append(pid)
    return found


def carries(pid: int, mark: str) -> bool:
    """Was this process started with the run's mark in its environment? Only our own are readable."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return b"TRAINYARD_MARK=" + mark.encode() in file.read().split(b"\0")
    except OSError:
        return False


def _only_ours(pid: int) -> bool:
    try:
        return os.stat("/proc/%d" % pid).st_uid == os.getuid()
    except OSError:
        return False


def marked(mark: str, everyone: Dict[int, Process]) -> Set[int]:
    """Processes with the run's mark, and all below them. Never this process or those above it."""
    if not mark:
        return set()
    above, pid = {os.getpid()}, os.getppid()
    while pid in everyone and pid not in above:
        above.add(pid)
        pid = everyone[pid].parent
    roots = {pid for pid in everyone if pid not in above and _only_ours(pid) and carries(pid, mark)}
    return (roots | descendants(roots, everyone)) - above


class Denied(NamedTuple):
    pid: int
    why: str


def signal_all(find: Callable[[], List[Process]], signums: Tuple[int, ...]) -> None:
    for process in find():
        for signum in signums:
            send_exactly(process.pid, process.ticks, signum)


def freeze_and_kill(find: Callable[[], List[Process]]) -> List[Denied]:
    """One round: stop everybody until a whole pass meets nobody new, then kill. Answers who may not be killed.

    Frozen first, because a chain of processes that fork and exit outruns a killer, but not a frozen self.
    """
    live: List[Process] = []
    before: Set[Process] = set()
    for _ in range(50):
        live = find()
        for process in live:
            send_exactly(process.pid, process.ticks, signal.SIGSTOP)
        # Compare identities without the state, which freezing changes.
        now = {process._replace(state="", parent=0) for process in live}
        if now <= before:
            break
        before = now
    denied = []
    for process in live:
        if send_exactly(process.pid, process.ticks, signal.SIGKILL) == "denied":
            denied.append(Denied(process.pid, "not permitted: it runs as another user"))
    return denied


# ---------------------------------------------------------------------------------------------------------------
# GPUs: who uses one. Two witnesses, because each misses somebody: the driver's list of compute processes, and who has
# /dev/nvidia<minor> open. Without root the second one sees this login's processes only; it tells how many it could not
# look into.
# ---------------------------------------------------------------------------------------------------------------

GPU_PATIENCE_S = 1.0  # a process that is just dying may still be listed
# How long nvidia-smi may take, and how often GPUs that are kept out of use are looked at again.
GPU_LOOK_S = float(os.environ.get("TRAINYARD_GPU_LOOK_S") or 10)
MOST_HOLDERS = 8  # of one GPU: more would not be read by anybody
# Who opens every device without computing on it: the driver's own services, monitors, and screens.
_ONLOOKERS = {
    "nvidia-smi", "nvidia-persiste", "nvidia-powerd", "nv-hostengine", "nv-fabricmanage", "dcgm-exporter",
    "nvidia-device-p", "nvtop", "nvitop", "gpustat", "btop", "Xorg", "Xwayland", "gnome-shell", "kwin_wayland",
}  # fmt: skip


class Program:
    """A program of this host that is asked something: begun now, heard later, left behind if it hangs."""

    def __init__(self, command: List[str]) -> None:
        self._name = command[0]
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._failed = ""
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._file,
                stderr=self._file,
                start_new_session=True,
            )
        except OSError as error:
            self._failed = str(error)

    def answer(self, timeout: float) -> Tuple[int, str]:
        """(status, what it printed). One that hangs, as nvidia-smi can, counts as failed."""
        with self._file:
            if self._failed:
                return 127, self._failed
            try:
                status = self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
                with contextlib.suppress(
                    subprocess.TimeoutExpired
                ):  # it may hang in the kernel, as drivers do
                    self._process.wait(1)
                return 124, "%s did not answer within %g s" % (self._name, timeout)
            self._file.seek(0)
            return status, self._file.read(1 << 20).decode("utf-8", "replace")


def output_of(command: List[str], timeout: float = 10.0) -> Tuple[int, str]:
    return Program(command).answer(timeout)


class GpuLook(NamedTuple):
    """Who was on which GPU. `error`: the driver could not be asked, so nothing is proved."""

    holders: Dict[str, List[Dict[str, Any]]]
    unseen: int  # processes of others whose open files only root may see
    error: str

    def busy(self, mark: str = "") -> Dict[str, List[Dict[str, Any]]]:
        """Those in the way of the run with that mark. Another living run may look at every device."""
        rows = {
            uuid: [h for h in held if h["how"] == "compute" or h["run"] != "live" or h["mark"] == mark]
            for uuid, held in self.holders.items()
        }
        return {uuid: held[:MOST_HOLDERS] for uuid, held in rows.items() if held}


def _gpu_root() -> str:
    """Where /dev and /proc/driver are: elsewhere in tests only."""
    return os.environ.get("TRAINYARD_GPU_ROOT", "")


def gpu_minors() -> Dict[str, int]:
    """UUID to the N of /dev/nvidiaN, which is not the index of nvidia-smi. Empty where the driver does not tell."""
    base = _gpu_root() + "/proc/driver/nvidia/gpus"
    found = {}
    try:
        for name in os.listdir(base):
            with open(os.path.join(base, name, "information"), errors="replace") as file:
                text = file.read(65536)
            uuid = re.search(r"^GPU UUID:\s*(\S+)", text, re.M)
            minor = re.search(r"^Device Minor:\s*(\d+)", text, re.M)
            if uuid and minor:
                found[uuid.group(1)] = int(minor.group(1))
    except OSError:
        pass
    return found


def open_devices() -> Tuple[Dict[int, Set[int]], int]:
    """(minor to the pids that have it open, how many processes could not be looked into)."""
    own, loose = _gpu_root() + "/dev/nvidia", not _gpu_root()
    found: Dict[int, Set[int]] = {}
    unseen = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fds = os.listdir("/proc/%s/fd" % name)
        except PermissionError:
            unseen += _has_command(name)
            continue
        except OSError:
            continue
        for fd in fds:
            try:
                target = os.readlink("/proc/%s/fd/%s" % (name, fd))
            except OSError:
                continue
            # The link is compared as text, for a stat could hang. In another mount namespace it has a longer name.
            head, _, tail = target.rpartition("nvidia")
            if tail.isdigit() and (head + "nvidia" == own or loose and head.endswith("/dev/")):
                found.setdefault(int(tail), set()).add(int(name))
    return found, unseen


def _has_command(pid: str) -> bool:
    """Threads of the kernel have none, and hold no device."""
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


def look_at_gpus(uuids: List[str], quick: bool = False) -> GpuLook:
    """Who uses these GPUs now. Takes as long as nvidia-smi does, so serve itself never calls it.

    A quick look does not ask the driver where it need not: our own processes have a device open, or do not use it.
    """
    query = ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader"]
    minors = gpu_minors()
    needed = not quick or any(uuid not in minors for uuid in uuids)
    asked = Program(query) if needed and shutil.which("nvidia-smi") else None
    devices, unseen = open_devices()
    found: Dict[str, Dict[Tuple[int, str], Dict[str, Any]]] = {uuid: {} for uuid in uuids}
    for uuid in uuids:
        for pid in devices.get(minors.get(uuid, -1), ()):
            found[uuid][pid, "open"] = describe_holder(pid, "open")
    error = ""
    if asked is not None:
        status, text = asked.answer(GPU_LOOK_S)
        if status != 0:
            error = text.strip()[:500] or "nvidia-smi ended with status %d" % status
        else:
            for uuid, pid in re.findall(r"^\s*([^\s,]+)\s*,\s*(\d+)\s*$", text, re.M):
                if uuid in found:
                    found[uuid].pop((int(pid), "open"), None)
                    found[uuid][int(pid), "compute"] = describe_holder(int(pid), "compute")
    holders = {
        uuid: [h for h in rows.values() if h["how"] == "compute" or h["name"] not in _ONLOOKERS]
        for uuid, rows in found.items()
    }
    return GpuLook(holders, unseen, error)


def describe_holder(pid: int, how: str) -> Dict[str, Any]:
    """A process for a person to recognise, and to be found again exactly. `run` tells whether it is one of ours."""
    process = read_process(pid)
    found: Dict[str, Any] = {"pid": pid, "ticks": 0, "user": "", "age_s": None, "name": "", "how": how}
    found.update(run="", mark="")
    if process is None:
        return found
    hertz = os.sysconf("SC_CLK_TCK")
    found.update(ticks=process.ticks, age_s=int(max(0, time.clock_gettime(7) - process.ticks / hertz)))
    with contextlib.suppress(OSError, KeyError):
        uid = os.stat("/proc/%d" % pid).st_uid
        found["user"] = str(uid)
        found["user"] = pwd.getpwuid(uid).pw_name
    found["name"] = name_of(pid)
    mark = mark_of(pid)
    found["run"] = state_of_mark(mark)
    found["mark"] = mark if found["run"] else ""
    return found


def name_of(pid: int) -> str:
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8", errors="replace") as file:
            return "".join(c if c.isprintable() else "?" for c in file.read(64).strip())
    except OSError:
        return ""


def mark_of(pid: int) -> str:
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            for item in file.read(1 << 20).split(b"\0"):
                if item.startswith(b"TRAINYARD_MARK="):
                    return item[15:].decode("utf-8", "replace")
    except OSError:
        pass
    return ""


def state_of_mark(mark: str) -> str:
    """ "live" or "left" for a process of a run that this host knows, of any deployment; "" for everybody else's."""
    run = mark.partition(":")[2]
    if not is_run_id(run):
        return ""
    root = os.path.join(os.path.expanduser("~"), ".trainyard")
    for deployment in os.listdir(root) if os.path.isdir(root) else ():
        facts = load_facts(os.path.join(root, deployment, "runs", run))
        if facts is not None and facts["mark"] == mark:
            return "left" if facts["phase"] == "closed" else "live"
    return ""


def words_of_holders(uuid: str, holders: List[Dict[str, Any]]) -> str:
    """`GPU-1 is in use: PID 4711 (python3) of alice for 2 h`."""
    found = []
    for holder in holders:
        name = " (%s)" % (holder["name"] or "not to be seen from here")
        user = " of %s" % holder["user"] if holder["user"] else ""
        age = " for %s" % _span(holder["age_s"]) if holder["age_s"] is not None else ""
        doing = {"open": ", by its open device", "lock": ", by its lock"}.get(holder["how"], "")
        found.append("PID %d%s%s%s%s" % (holder["pid"], name, user, age, doing))
    return "GPU %s is in use: %s" % (uuid, "; ".join(found))


def _span(seconds: int) -> str:
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return "%d %s" % (seconds // size, word)
    return "%d s" % seconds


def gpus_in_the_way(uuids: List[str], mark: str, quick: bool = False) -> Tuple[Dict[str, Any], str]:
    """Look until these GPUs are free or the patience is over: (who is left on which, what the driver complains of).

    What carries `mark`, or that of a run that is over, is killed: it should not have outlived its run.
    """
    until = time.monotonic() + GPU_PATIENCE_S
    while True:
        look = look_at_gpus(uuids, quick)
        busy = look.busy(mark)
        for row in [row for rows in busy.values() for row in rows]:
            if row["run"] == "left" or mark and row["mark"] == mark:
                send_exactly(row["pid"], row["ticks"], signal.SIGKILL)
        if not (busy or look.error) or time.monotonic() >= until:
            return busy, look.error
        time.sleep(0.1)


def report_on_gpus(locks: Dict[str, str]) -> Dict[str, Any]:
    """For the console: who is on each of these GPUs, or holds its lock: a run of ours that should be over, say."""
    look = look_at_gpus(list(locks))
    busy = look.busy()
    held = {uuid: busy.get(uuid, []) or lock_holders(path) for uuid, path in locks.items()}
    return {"gpus": told_holders(held), "unseen": look.unseen, "error": look.error}


def lock_holders(path: str) -> List[Dict[str, Any]]:
    """Who took the flock of this file, without trying to take it: a start that comes just now must not be refused."""
    try:
        inode = os.stat(path).st_ino
        with open("/proc/locks") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    # 1: FLOCK ADVISORY WRITE <pid> <device>:<inode> 0 EOF; a waiting one has an arrow behind its number.
    pids = [
        int(r[4]) for r in rows if len(r) > 5 and r[1] == "FLOCK" and r[5].rpartition(":")[2] == str(inode)
    ]
    return [describe_holder(pid, "lock") for pid in pids if pid > 0]


def evict(gpu: str, pids: Set[Tuple[int, int]]) -> List[str]:
    """Kill those of `pids` that are on the GPU now; says in words what became of each."""
    words = []
    for row in look_at_gpus([gpu]).busy().get(gpu, []):
        if (row["pid"], row["ticks"]) in pids:
            answer = send_exactly(row["pid"], row["ticks"], signal.SIGKILL)
            told = {"sent": "was killed", "gone": "was gone already"}.get(
                answer, "runs as another user: not permitted"
            )
            words.append("PID %d %s" % (row["pid"], told))
    return words or ["none of them is on it any more"]


def told_holders(busy: Dict[str, Any]) -> Dict[str, Any]:
    """For the wire: the mark is for us alone."""
    return {
        uuid: [{key: value for key, value in row.items() if key != "mark"} for row in rows]
        for uuid, rows in busy.items()
    }


# ---------------------------------------------------------------------------------------------------------------
# Containment: a cgroup of its own where the host has delegated one to us; and who was killed for memory.
# ---------------------------------------------------------------------------------------------------------------


def delegated_cgroup(controller: str = "") -> str | None:
    """The directory of our own cgroup, of v2 or of a controller of v1, if we may make children in it."""
    if os.environ.get("TRAINYARD_NO_CGROUP"):
        return None
    try:
        with open("/proc/self/cgroup") as file:
            rows = [line.rstrip("\n").split(":", 2) for line in file]
        with open("/proc/self/mountinfo") as file:
            mounted = [line.split(" - ") for line in file]
    except OSError:
        return None
    own = [row[2] for row in rows if len(row) == 3 and controller in row[1].split(",")]
    for mount in mounted:
        kind, _, options = mount[-1].split()[:3]
        if (
            own
            and kind == ("cgroup" if controller else "cgroup2")
            and (not controller or controller in options.split(","))
        ):
            root, point = mount[0].split()[3:5]
            below = own[0][len(root) :] if root != "/" and own[0].startswith(root) else own[0]
            path = os.path.normpath(point + "/" + below)
            if os.access(path, os.W_OK) and os.path.exists(os.path.join(path, "cgroup.procs")):
                return path
    return None


def cgroup_path(run: str, mark: str, controller: str = "") -> str | None:
    """Where a run's cgroup is. The mark's random part makes it unique: nobody joins what another run left there."""
    parent = delegated_cgroup(controller)
    return os.path.join(parent, "trainyard.%s.%s" % (run, mark[:16])) if parent else None


def make_cgroup(path: str | None) -> str | None:
    try:
        if path is None:
            return None
        # Whether children get the controller is the parent's to say; it can only while it holds no process itself.
        _try_write(os.path.join(os.path.dirname(path), "cgroup.subtree_control"), "+memory")
        os.mkdir(path)
    except OSError:
        return None
    if not os.access(os.path.join(path, "cgroup.kill"), os.W_OK):  # before Linux 5.14
        remove_cgroup(path)
        return None
    return path


def limit_memory(own: str | None, run: str, mark: str, memory_mb: int | None) -> Tuple[str | None, bool]:
    """(the cgroup that counts this run's memory, is the limit enforced?): its own of v2, or one of v1 beside it."""
    limit = str((memory_mb or 0) << 20)
    if own and os.path.exists(os.path.join(own, "memory.events")):
        _try_write(os.path.join(own, "memory.oom.group"), "1")  # a half-killed program only hangs
        return own, memory_mb is not None and _try_write(os.path.join(own, "memory.max"), limit)
    # To join one of v1 costs a start milliseconds, so it is for limits only.
    path = cgroup_path(run, mark, "memory") if memory_mb is not None else None
    try:
        if path is None:
            return None, False
        os.mkdir(path)
    except OSError:
        return None, False
    return path, memory_mb is not None and _try_write(os.path.join(path, "memory.limit_in_bytes"), limit)


def memory_limits_here() -> bool:
    """Would a limit be enforced on this host? Found out by trying."""
    name = "probe-%d" % os.getpid()
    own = make_cgroup(cgroup_path(name, ""))
    group, enforced = limit_memory(own, name, "", 1024)
    for path in {own, group} - {None}:
        remove_cgroup(str(path))
    return enforced


def _try_write(path: str, text: str) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        os.write(fd, text.encode())
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def join_cgroup(path: str) -> bool:
    """Move this process into the cgroup."""
    return _try_write(os.path.join(path, "cgroup.procs"), "0")


def cgroup_pids(path: str | None) -> Set[int]:
    """Everybody in the cgroup and those below it."""
    found: Set[int] = set()
    for directory, _, _ in os.walk(path) if path else ():
        try:
            with open(os.path.join(directory, "cgroup.procs")) as file:
                found.update(int(line) for line in file)
        except OSError:
            pass
    return found - {0}


def remove_cgroup(path: str) -> None:
    for directory, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)


def _counter(path: str, word: str) -> int | None:
    try:
        with open(path) as file:
            rows = [line.split() for line in file]
        return next((int(row[1]) for row in rows if len(row) == 2 and row[0] == word), None)
    except (OSError, ValueError):
        return None


def host_oom_kills() -> int | None:
    return _counter("/proc/vmstat", "oom_kill")


def own_oom_kills(group: str | None) -> int | None:
    """How many of this cgroup the kernel has killed for want of memory; None where nobody counts."""
    if group is None:
        return None
    found = _counter(os.path.join(group, "memory.events"), "oom_kill")
    return found if found is not None else _counter(os.path.join(group, "memory.oom_control"), "oom_kill")


class OomCounts(NamedTuple):
    """The kernel's count of all it has killed for memory: when the run began, and at the last look before it ended."""

    before: int | None
    lately: int | None
    after: int | None


def judge_oom(own: int | None, host: OomCounts, killed: bool, failed: bool) -> Tuple[bool | None, str, str]:
    """(out of memory?, how sure: certain, likely or unknown, in words). None: this host cannot tell."""
    if not failed:
        return False, "certain", ""
    if own is not None:
        words = "the kernel killed it for memory (its own cgroup counted %d)" % own if own else ""
        return own > 0, "certain", words
    if not killed:
        return False, "likely", ""
    if host.before is None or host.lately is None or host.after is None:
        return None, "unknown", "this host does not tell whether SIGKILL came for want of memory"
    if host.after > host.lately:
        count = host.after - host.lately
        return (
            True,
            "likely",
            "killed when this host ran out of memory (the kernel counted %d just then)" % count,
        )
    if host.after > host.before:
        return None, "unknown", "this host ran out of memory while it ran, but not when it was killed"
    return False, "certain", ""


# ---------------------------------------------------------------------------------------------------------------
# Log custody, the keeper's half: time marks while nobody looks, and a bound on the disk that a log may take.
# Offsets here are offsets in the file. What was punched is written down first, so no reader takes zeros for text.
# ---------------------------------------------------------------------------------------------------------------

_MARK = struct.Struct("<Qd")


class Custody:
    """Looks at a growing log now and then: seldom when it is quiet, often when it nears its budget."""

    def __init__(self, directory: str, fd: int, budget_mb: int) -> None:
        self._directory = directory
        self._fd = fd
        self._budget = budget_mb << 20
        self._generation, self._holes = read_cut(directory)
        self._size = 0
        self._used = 0
        self.quiet = False
        self._looked = time.monotonic()
        self._begun = self._next_mark = self._looked
        self._inotify = Inotify()
        self._inotify.watch(os.path.join(directory, "log"), IN_MODIFY)
        self.fd = self._inotify.fd

    def drain(self) -> None:
        for _ in self._inotify.read():
            pass

    def look(self) -> float:
        """Do what is due; answers after how many seconds to look again."""
        now = time.monotonic()
        found = os.fstat(self._fd)
        if found.st_size < self._size:  # the program cut its own log: what was punched is new text now
            self._generation += 1
            self._holes = []
            self._write_cut()
        if found.st_size != self._size and now >= self._next_mark:
            self._add_mark(found.st_size, now)
        used = found.st_blocks * 512
        grown = (used - self._used) / max(now - self._looked, 0.001)
        if used > self._budget:
            self._punch(found.st_size)
            used = os.fstat(self._fd).st_blocks * 512
        self.quiet = found.st_size == self._size
        self._size, self._used, self._looked = found.st_size, used, now
        if self.quiet:
            return 1.0
        # Be back before a fast writer has used a quarter of the room that is left.
        return min(1.0, max(0.004, (self._budget - used) / 4 / max(grown, 256e6)))

    def _add_mark(self, size: int, now: float) -> None:
        # One mark a second at first, then ever fewer: a log of any length has a few thousand.
        self._next_mark = now + max(1.0, (now - self._begun) / 1000)
        try:
            with open(os.path.join(self._directory, "log.marks"), "ab") as file:
                file.write(_MARK.pack(size, time.time()))
        except OSError:
            pass  # a full disk: times become less exact, nothing else

    def _punch(self, size: int) -> None:
        """Give up the middle: the head says how it began, the tail how it ended."""
        head = self._budget // 4 // 65536 * 65536
        start = max(head, self._holes[-1][1] if self._holes else 0)
        end = (size - self._budget // 2) // 65536 * 65536
        if end <= start:
            return
        before = self._holes
        self._holes = [[before[-1][0] if before else start, end]]
        if self._write_cut() and punch_hole(self._fd, start, end - start):
            with contextlib.suppress(OSError):
                make_spares(self._directory)  # writing that down on a full disk may have taken one
            return
        # This file system cannot give a part of a file back, or not even the note fits: lose nothing then.
        self._holes = before
        self._write_cut()
        self._budget = max(self._budget, size * 2)

    def _write_cut(self) -> bool:
        document = {"generation": self._generation, "holes": self._holes}
        try:
            write_with_spares(self._directory, "log.cut", json.dumps(document).encode(), False)
            return True
        except OSError:
            return False


# ---------------------------------------------------------------------------------------------------------------
# The keeper: everything that happens to one run on its host, with no console needed.
# ---------------------------------------------------------------------------------------------------------------

# How often a run notes what the kernel has counted: an older count says nothing about its end.
OOM_LOOK_S = 20.0
SYNC_S = 1.0

# What the replica's process has got to before it became the command, in memory shared by keepers and replica.
_BORN, _GO, _NEVER, _FAILED = 1, 2, 3, 4
_BOARD = struct.Struct("<iii256s")  # pid, state, outside its cgroup, words
_POLITE = "TERM INT HUP QUIT PIPE USR1 USR2 ALRM TSTP TTIN TTOU"


def detach(keep: Set[int], title: str) -> None:
    """Make a fork of serve independent of it: own session, no descriptors but `keep`, deaf to polite signals."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for name in _POLITE.split():
        signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
    os.chdir("/")
    retitle(title)


def fork_detached(act: Callable[[], None], directory: str, keep: Set[int], title: str) -> int:
    """Run `act` in a process of its own that outlives this one. What goes wrong there is left in keeper.err."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        detach(keep, title)
        act()
        status = 0
    except BaseException:
        _leave_trace(directory)
    finally:
        os._exit(status)


def _leave_trace(directory: str) -> None:
    with contextlib.suppress(OSError), open(os.path.join(directory, "keeper.err"), "a") as file:
        if file.tell() < 64 * 1024:
            traceback.print_exc(file=file)


def take_lock(path: str) -> int:
    """The lock as an open descriptor, or -1 when somebody living holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd
    except OSError:
        os.close(fd)
        return -1


def check_port(port: int) -> None:
    """Refused if somebody on this host listens there. Connections in TIME_WAIT are no obstacle."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
                probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise Refused("port_taken", "port %d is in use on this host" % port) from None


def write_files(work: str, files: Dict[str, str]) -> None:
    for name, content in files.items():
        path = os.path.join(work, name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o700), "wb") as file:
            file.write(os.fsencode(content))


STORAGE_S = float(os.environ.get("TRAINYARD_STORAGE_S") or 20)


def elsewhere(base: str, path: str) -> bool:
    """May `path`, below `base`, be on another file system than that? Told without touching what may hang."""
    with open("/proc/self/mountinfo", "rb") as file:
        # As names stand there: blanks, tabs, newlines and backslashes are octal numbers.
        name = re.sub(rb"[ \t\n\\]", lambda found: b"\\%03o" % ord(found.group(0)), os.fsencode(base))
        if b" " + name + b"/" in file.read():
            return True
    return any(os.path.islink(part) for part in (os.path.dirname(path), path))


def in_time(act: Callable[[], None], patience_s: float) -> bool:
    """Have a child do it. False if it failed, or hangs: then it is killed, and left behind if even that takes long."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return False


_SECRETS = ("order.json", "stop.json", "control")


def clean_directory(directory: str) -> None:
    """What a closed run needs no more. Its order goes first of all: the environment in it may hold secrets."""
    try:
        names = os.listdir(directory)
    except OSError:
        return  # already forgotten
    for name in names:
        if name in _SECRETS or name.startswith("spare.") or ".new." in name:
            _unlink(os.path.join(directory, name))


class Keeper:
    """One run's keeper. `outer` and `inner` are its two lives; `mend` is what is left to do when both were killed.

    Only one process works at a time. All that it knows is on disk or on the shared board, so that the other one can
    go on from any point: an exit is written down before the zombie that proves it is reaped.
    """

    def __init__(self, home: Home, run: str, umask: int = 0o022) -> None:
        self.home, self.run, self.umask = home, run, umask
        self.directory = home.run(run)
        self.facts: Facts = new_facts(run)
        self.order: Order | None = None
        self.main = 0
        self.main_over = False
        self.childless = False
        self.wide = False  # must processes outside our own tree be looked for?
        self.orphan: Process | None = None
        self.parent = 0
        self.stopping: str | None = None
        self.deadline = 0.0
        self.gpu_locks: List[int] = []
        self.log = self.control = self.started_pipe = self.gate = -1
        self.work = ""
        self.oom_before: int | None = None
        self.oom_lately: int | None = None
        self.oom_look_at = 0.0

    # -- preparing --

    def outer(self, document: Dict[str, Any] | Refused) -> None:
        """The outer keeper's life, in a fresh fork of serve that holds the run's lock."""
        failpoint("keeper_born")
        if os.path.exists(os.path.join(self.directory, "facts.json")):
            return  # somebody found the claim without a keeper and closed it: never start it now
        become_subreaper()
        try:
            if isinstance(document, Refused):
                raise document
            self.prepare(document)
        except Refused as refused:
            self.close_unstarted("refused", str(refused), refused.refusal)
            return
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            self.close_unstarted("refused", "%s" % error, "disk_full" if full else "exec_failed")
            return
        failpoint("after_order")
        inner = os.fork()
        if inner == 0:
            self.inner()
        os.close(self.started_pipe_write)
        os.close(self.gate)
        with contextlib.suppress(OSError):
            # Before anything is executed: the claim must survive a power loss. Here, while the other one prepares.
            fsync_directory(self.home.runs)
            os.write(self.synced_write, b"s")
        os.close(self.synced_write)
        _, status = os.waitpid(inner, 0)
        if status != 0:
            self.take_over()

    def prepare(self, document: Dict[str, Any]) -> None:
        order = self.order = parse_order(document)
        directory, facts = self.directory, self.facts
        facts["mark"] = "%s:%s" % (os.urandom(8).hex(), order.mark)
        facts["work_key"] = order.work_key
        make_spares(directory)
        save_facts(directory, facts)
        write_file(os.path.join(directory, "order.json"), json.dumps(document).encode())
        self.lock_gpus(order.gpus)
        failpoint("after_gpu_lock")
        self.check_gpus(order.gpus)
        if order.port is not None:
            check_port(order.port)
        self.work = os.path.join(directory, "work")
        if order.work_key is not None:
            self.work = os.path.join(self.home.work, order.work_key)
        self.make_work(order.files)
        facts["work"] = self.work
        facts["cgroup"] = make_cgroup(cgroup_path(self.run, facts["mark"]))
        group, enforced = limit_memory(facts["cgroup"], self.run, facts["mark"], order.memory_mb)
        facts.update(memory_cgroup=group, memory_mb=order.memory_mb)
        facts["memory_enforced"] = enforced if order.memory_mb else None
        facts["containment"] = "cgroup" if facts["cgroup"] else "subreaper"
        facts.update(grace_s=order.grace_s, gpus=order.gpus, port=order.port, web_access=order.web_access)
        self.oom_before = self.oom_lately = host_oom_kills()
        self.oom_look_at = time.monotonic() + OOM_LOOK_S
        self.open_channels()

    def lock_gpus(self, gpus: List[str]) -> None:
        for gpu in sorted(gpus):
            fd = take_lock(self.home.gpu_lock(gpu))
            if fd < 0:
                self.facts["busy"] = {gpu: []}
                raise Refused("gpu_busy", "GPU %s is held by another run on this host" % gpu)
            os.set_inheritable(fd, True)  # the replica holds it too, should all keepers die
            self.gpu_locks.append(fd)

    def make_work(self, files: Dict[str, str]) -> None:
        """What touches a user's path. Where that may be on a disk of its own, a child with a deadline does it."""

        def act() -> None:
            os.makedirs(self.work, mode=0o700, exist_ok=True)
            write_files(self.work, files)

        if not elsewhere(self.home.base, self.work):
            act()
        elif not in_time(act, STORAGE_S):
            raise Refused("storage", "%s does not answer, or cannot be written" % self.work)

    def check_gpus(self, gpus: List[str]) -> None:
        """Refused unless every one is proved free of strangers."""
        if not gpus:
            return
        busy, error = gpus_in_the_way(gpus, "")
        if busy:
            self.facts["busy"] = told_holders(busy)
            raise Refused("gpu_busy", "; ".join(words_of_holders(uuid, busy[uuid]) for uuid in sorted(busy)))
        if error:
            self.facts["busy"] = {gpu: [] for gpu in gpus}
            raise Refused("gpu_busy", "it cannot be told whether its GPUs are free: %s" % error)

    def clean_gpus(self) -> None:
        """Nobody of ours may stay on a GPU that is given back. Others are named; the console keeps it out of use."""
        gpus = [str(gpu) for gpu in self.facts.get("gpus") or []]
        if gpus and self.facts["started_at"]:
            busy, _ = gpus_in_the_way(gpus, self.facts["mark"], quick=True)
            self.facts["busy"] = told_holders(busy)

    def open_channels(self) -> None:
        flags = os.O_CLOEXEC
        path = os.path.join(self.directory, "log")
        self.log = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | flags, 0o600)
        control = os.path.join(self.directory, "control")
        os.mkfifo(control, 0o600)
        self.control = os.open(control, os.O_RDWR | os.O_NONBLOCK | flags)
        self.started_pipe, self.started_pipe_write = os.pipe()
        self.gate_read, self.gate = os.pipe()
        self.synced, self.synced_write = os.pipe()
        self.board = mmap.mmap(-1, 4096)

    # -- the replica's process --

    def spawn(self) -> None:
        assert self.order is not None
        env = build_env(self.order, self.run, self.work, self.facts["mark"])
        pid = os.fork()
        if pid == 0:
            self.become_replica(self.order.command, env)
        self.main = pid
        os.close(self.gate_read)
        os.close(self.started_pipe_write)

    def become_replica(self, command: List[str], env: Dict[str, str]) -> NoReturn:
        """In the replica's process: everything up to exec. What fails is told on the board."""
        try:
            os.setsid()
            self.pin(_BORN)
            os.close(self.gate)  # ours, or we would never see the keeper's end close
            outside = 0
            for bit, group in ((1, self.facts["cgroup"]), (2, self.facts["memory_cgroup"])):
                outside |= bit if group and not join_cgroup(group) else 0
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(self.log, 1)
            os.dup2(self.log, 2)
            os.chdir(self.work)
            for signum in range(1, 65):
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(signum, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            if os.read(self.gate_read, 1) != b"g":
                self.pin(_NEVER)  # the keeper died before it let us go: this command never was
                os._exit(0)
            os.umask(self.umask)
            self.pin(_GO, outside)
            os.execvpe(command[0], command, env)
        except OSError as error:
            self.pin(_FAILED, words="%s: %s" % (error.strerror, command[0]))
        except BaseException as error:
            self.pin(_FAILED, words=repr(error))
        finally:
            os._exit(127)

    def pin(self, state: int, outside: int = 0, words: str = "") -> None:
        data = words.encode("utf-8", "replace")[:255]
        self.board[: _BOARD.size] = _BOARD.pack(os.getpid(), state, outside, data)

    def pinned(self) -> Tuple[int, int, int, str]:
        """(pid, state, which cgroups it could not join, words) of the replica's process before exec."""
        pid, state, outside, words = _BOARD.unpack(self.board[: _BOARD.size])
        return pid, state, outside, words.rstrip(b"\0").decode("utf-8", "replace")

    # -- working --

    def inner(self) -> NoReturn:
        status = 1
        try:
            become_subreaper()
            self.parent = os.getppid()
            self.spawn()
            self.watch_children()
            self.custody = Custody(self.directory, self.log, self.order.log_budget_mb if self.order else 1)
            stop = read_deadline(self.directory)
            self.await_sync()
            failpoint("before_gate")
            if stop is None:
                os.write(self.gate, b"g")
                failpoint("after_gate")
            os.close(self.gate)
            self.attend()
            status = 0
        except BaseException:
            _leave_trace(self.directory)
        finally:
            os._exit(status)

    def await_sync(self) -> None:
        """The outer keeper makes the claim durable meanwhile; if it was killed or stopped, this one does."""
        os.close(self.synced_write)
        if not select.select([self.synced], [], [], SYNC_S)[0] or os.read(self.synced, 1) != b"s":
            fsync_directory(self.home.runs)
        os.close(self.synced)

    def take_over(self) -> None:
        """The inner keeper was killed. Its children are ours now; go on from what is written and pinned."""
        found = load_facts(self.directory)
        # As long as only the claim is written, we know more than that: all that was prepared since.
        if found is not None and found["phase"] != "claimed":
            self.facts = found
        if self.facts["phase"] == "closed" or not os.path.isdir(self.directory):
            clean_directory(self.directory)
            return
        retitle("trainyard-keeper %s (second)" % self.run)
        self.watch_children()
        self.custody = Custody(self.directory, self.log, self.order.log_budget_mb if self.order else 1)
        self.await_birth()
        self.main = self.pinned()[0]
        self.wide = True
        self.main_over = self.facts["phase"] == "ended" or self.main == 0
        self.stopping = self.facts.get("stopping")
        if self.stopping:
            self.deadline = time.monotonic() + self.facts.get("grace_s", 0)
        self.attend()

    def await_birth(self) -> None:
        """The replica's process may be forked, but not yet have come to say so. Without reaping anything."""
        with contextlib.suppress(ChildProcessError):
            while True:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if self.pinned()[0] or dead is not None:
                    return
                time.sleep(0.001)

    def watch_children(self) -> None:
        self.wake, write = os.pipe()
        for fd in (self.wake, write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)

    def attend(self) -> None:
        """From the first moment to the closed fact."""
        poll = select.poll()
        for fd in (self.wake, self.control, self.started_pipe, self.custody.fd):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        look_at = 0.0
        while True:
            self.reap()
            if self.childless and (self.main_over or self.main == 0):
                break
            now = time.monotonic()
            if (
                now >= self.oom_look_at
            ):  # after reaping: what was counted just before belongs to an end just seen
                self.oom_look_at, self.oom_lately = now + OOM_LOOK_S, host_oom_kills()
            self.check_stop(now)
            if self.stopping and now >= self.deadline or self.main_over and not self.stopping:
                break
            if now >= look_at:
                look_at = now + self.custody.look()
                if self.custody.quiet and self.custody.fd >= 0:
                    poll.register(self.custody.fd, select.POLLIN)  # its next byte wakes us
            for fd, _ in poll.poll(max(0.0, min(look_at, self.next_deadline(now)) - now) * 1000 + 1):
                if fd == self.started_pipe:
                    poll.unregister(fd)
                    self.note_started()
                elif fd == self.custody.fd:
                    self.custody.drain()
                    poll.unregister(fd)  # busy: from here on by the clock, not by every write
                    look_at = min(look_at, now + 0.01)
                elif fd == self.control:
                    self.obey(os.read(fd, 4096))
                else:
                    os.read(fd, 4096)
        self.finish()

    def next_deadline(self, now: float) -> float:
        if self.stopping:
            return self.deadline
        timeout = self.order.timeout_s if self.order else None
        started = self.facts["mono_started"]
        return min(started + timeout if timeout and started else math.inf, now + OOM_LOOK_S)

    def note_started(self) -> None:
        """The started pipe closed: the replica's process is the command now, or it never will be."""
        if self.facts["started_at"] is not None or self.main_over or self.pinned()[1] != _GO:
            return
        process = read_process(self.main)
        self.facts.update(
            phase="running",
            started_at=time.time(),
            mono_started=time.monotonic(),
            pid=self.main,
            ticks=process.ticks if process else None,
            never_started=False,
        )
        if self.pinned()[2] & 1:
            self.facts["containment"] = "subreaper"
        if self.pinned()[2] & 2:
            self.facts.update(memory_enforced=False, memory_cgroup=None)
        failpoint("before_started")
        self.save()
        failpoint("after_started")

    def save(self, durable: bool = False) -> None:
        """A fact that cannot be written is tried again for ever: as long as this process lives, it is not lost."""
        while True:
            try:
                save_facts(self.directory, self.facts, durable)
                return
            except OSError:
                if not os.path.isdir(self.directory):
                    return  # somebody deleted the whole run: there is no place left to tell it
                time.sleep(0.2)

    def reap(self) -> None:
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                self.childless = True
                return
            self.childless = False
            if found is None:
                return
            if found.si_pid == self.main and not self.main_over:
                self.note_ended(found.si_code, found.si_status)
            os.waitpid(found.si_pid, 0)

    def note_ended(self, code: int, status: int) -> None:
        """Write how the replica ended, before the zombie that proves it is reaped."""
        if self.pinned()[1] == _GO:
            self.note_started()
            self.main_over = True
            facts = self.facts
            exited = code == os.CLD_EXITED
            facts.update(
                phase="ended",
                ended_at=time.time(),
                seconds=time.monotonic() - (facts["mono_started"] or time.monotonic()),
                exit_code=status if exited else None,
                exit_signal=None if exited else status,
                why=self.stopping or "exit",
            )
            facts["log"] = dict(facts["log"], size=os.fstat(self.log).st_size)
            killed = status == signal.SIGKILL if not exited else status == 128 + signal.SIGKILL
            counts = OomCounts(self.oom_before, self.oom_lately, host_oom_kills() if killed else None)
            failed = not exited or status != 0
            own = own_oom_kills(facts["memory_cgroup"])
            facts["oom"], facts["oom_sure"], words = judge_oom(
                own, counts, killed and not self.stopping, failed
            )
            facts["message"] = facts["message"] or words
            failpoint("before_ended")
            self.save(durable=True)
            failpoint("before_reap")
        self.main_over = True

    # -- stopping --

    def obey(self, words: bytes) -> None:
        """A poke from serve. It repeats the deadline, for the disk may be too full for stop.json."""
        for line in words.split(b"\n"):
            with contextlib.suppress(ValueError):  # half a line, or somebody else's words
                if line.startswith(b"stop "):
                    self.begin_stop("stop", _finite_float(line[5:].decode("ascii")))

    def check_stop(self, now: float) -> None:
        deadline = read_deadline(self.directory)
        if deadline is not None:
            self.begin_stop("stop", deadline)
        timeout = self.order.timeout_s if self.order else None
        started = self.facts["mono_started"]
        if timeout and started and now >= started + timeout and not self.stopping:
            self.facts["message"] = "ran into its timeout of %g s" % timeout
            self.begin_stop("timeout", now + self.facts.get("grace_s", 0))

    def begin_stop(self, cause: str, deadline: float) -> None:
        if self.stopping:
            self.deadline = min(self.deadline, deadline)
            return
        if self.main_over:
            return
        self.stopping, self.deadline = cause, deadline
        self.facts.update(stopping=cause, stopping_at=time.time())
        if self.facts["phase"] == "running":
            self.save()
        self.wide = self.wide or bool(self.facts.get("web_access"))
        signal_all(self.everybody, (signal.SIGTERM, signal.SIGCONT))
        failpoint("between_term_and_kill")

    def everybody(self) -> List[Process]:
        """All living processes of this run that can be found: our tree, its cgroup, and who carries its mark."""
        everyone = all_processes()
        pids = descendants({os.getpid()}, everyone) | cgroup_pids(self.facts["cgroup"])
        if self.wide:
            pids |= marked(self.facts["mark"], everyone)
        orphan = self.orphan
        if orphan and orphan.pid in everyone and everyone[orphan.pid].ticks == orphan.ticks:
            pids |= {orphan.pid} | descendants({orphan.pid}, everyone)
        return [everyone[pid] for pid in pids if pid in everyone and everyone[pid].state not in "ZX"]

    def finish(self) -> None:
        """Kill until nobody is left, prove it, and close."""
        self.wide = self.wide or bool(self.facts.get("web_access")) or os.getppid() != self.parent
        began, pause = time.monotonic(), 0.002
        while True:
            self.reap()
            if self.nobody_left():
                break
            if self.facts["cgroup"]:
                _try_write(os.path.join(self.facts["cgroup"], "cgroup.kill"), "1")
            denied = freeze_and_kill(self.everybody)
            self.reap()
            time.sleep(pause)
            if time.monotonic() > began + 10:
                pause = 2.0
                self.tell_survivors(denied)
            else:
                pause = min(0.05, pause * 1.2)
        self.close()

    def nobody_left(self) -> bool:
        """The proof: the kernel knows no child of ours, the cgroup is empty, and nobody else carries the mark."""
        if not self.childless or cgroup_pids(self.facts["cgroup"]):
            return False
        # All of /proc is read only where somebody could be elsewhere.
        return not self.wide or not self.everybody()

    def tell_survivors(self, denied: List[Denied]) -> None:
        """Somebody cannot be killed. Say who; the run stays open and holds its GPUs until they are gone."""
        words = {one.pid: one.why for one in denied}
        rows = [
            {"pid": p.pid, "why": words.get(p.pid, "does not die (state %s)" % p.state)}
            for p in self.everybody()
        ]
        if rows[:20] != self.facts["survivors"]:
            self.facts["survivors"] = rows[:20]
            self.save()

    # -- closing --

    def close(self) -> None:
        """Nobody is left: release what the run held, then say so. In this order, or the next run meets a busy GPU."""
        facts = self.facts
        self.leave_cgroups()
        self.clean_gpus()
        for fd in self.gpu_locks:
            fcntl.flock(fd, fcntl.LOCK_UN)
        facts["survivors"] = []
        if facts["phase"] in ("claimed", "running"):
            self.explain_no_exit()
        facts.update(phase="closed", closed_at=time.time())
        size = os.fstat(self.log).st_size if self.log >= 0 else facts["log"].get("size", 0)
        facts["log"] = dict(facts["log"], size=size, final=True)
        for name in _SECRETS:
            _unlink(os.path.join(self.directory, name))
        failpoint("before_closed")
        self.save()
        failpoint("after_closed")
        clean_directory(self.directory)

    def leave_cgroups(self) -> None:
        for group in (self.facts["cgroup"], self.facts["memory_cgroup"]):
            if group:
                remove_cgroup(group)

    def explain_no_exit(self) -> None:
        """The replica is over without an exit status: it never was the command, or nobody saw it end."""
        facts = self.facts
        _, state, _, words = self.pinned() if self.log >= 0 else (0, _GO, 0, "")
        if state == _FAILED:
            facts.update(why="refused", refusal="exec_failed", message=words, never_started=True)
        elif state != _GO:
            why = "stop" if self.stopping or read_deadline(self.directory) is not None else "lost"
            facts.update(why=why, message=facts["message"] or "it was not started", never_started=True)
        else:
            facts["why"] = "lost"
            facts["ended_at"] = time.time() if facts["started_at"] else None
            facts["message"] = facts["message"] or "its keepers were killed; how it ended is not known"

    def close_unstarted(self, why: str, message: str, refusal: str | None = None) -> None:
        for fd in self.gpu_locks:
            fcntl.flock(fd, fcntl.LOCK_UN)
        self.leave_cgroups()
        close_unstarted(self.facts, why, message, refusal)
        for name in _SECRETS:
            _unlink(os.path.join(self.directory, name))
        self.save(durable=True)
        clean_directory(self.directory)

    def mend(self) -> None:
        """In a fresh fork that holds the lock of a run whose keepers are both dead: sweep what is left, and close."""
        found = load_facts(self.directory)
        if found is None:
            known = os.stat(self.directory).st_mtime > booted_at()
            close_unstarted(self.facts, "lost", "the runner died before anything was started")
            self.facts["never_started"] = True if known else None
            self.save(durable=True)
            clean_directory(self.directory)
            return
        self.facts, self.wide = found, True
        if found["phase"] == "closed":
            return
        become_subreaper()
        path = cgroup_path(self.run, found["mark"])
        if found["cgroup"] is None and path and os.path.isdir(path):
            found["cgroup"] = path  # made, but its keeper had not come to write so
        path = cgroup_path(self.run, found["mark"], "memory")
        if found["memory_cgroup"] is None and path and os.path.isdir(path):
            found["memory_cgroup"] = path
        log = os.path.join(self.directory, "log")
        found["log"] = dict(found["log"], size=os.path.getsize(log) if os.path.exists(log) else 0)
        orphan = read_process(found["pid"] or 0)
        if orphan is not None and orphan.ticks == found["ticks"]:
            self.orphan = orphan
        self.finish()


# ---------------------------------------------------------------------------------------------------------------
# Log shipping, serve's half: from the file to frames. The wire's offsets are the file's, plus `shift` once the
# program has cut its own log.
# ---------------------------------------------------------------------------------------------------------------

FRAME_BYTES = 64 * 1024
BULK_BYTES = 256 * 1024
WINDOW_BYTES = 4 * 1024 * 1024
KEEP_BYTES = 64 * 1024
MOST_MARKS = 100_000
PUNCH_STEP = 1024 * 1024
CUT_PAUSE_S, MOST_CUT_PAUSE_S = 0.02, 5.0
QUIET_S = (
    0.004  # a small frame goes at once, but not more often than this: a busy writer's lines are gathered
)


class Tail:
    """One run's log on its way to the console."""

    def __init__(self, run: str, directory: str) -> None:
        self.run, self.directory = run, directory
        self.fd = -1
        self.pulled = False
        self.closed = False
        self.final_size = 0
        self.told_end = False
        self.sent = self.acked = 0
        self._skipped: List[Tuple[int, int]] = []  # gaps above what is acknowledged: they fill no window
        self.not_before = 0.0
        self._seen = 0
        self._shift, self._generation, self._shipped = 0, 0, 0
        self._noted = 0  # blocks whose digest is on disk
        self._can_punch = True
        self._cut_stamp: Tuple[int, int] | None = None
        self._cuts = 0
        self._holes: List[List[int]] = []
        self._digest = LogDigest()
        self._marks: List[Tuple[int, float]] = []
        self._load()

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _load(self) -> None:
        found = read_json(self._path("log.sent")) or {}
        self._shift = whole(found.get("shift"))
        self._generation = whole(found.get("generation"))
        self._shipped = whole(found.get("shipped"))
        try:
            size = os.stat(self._path("log"), follow_symlinks=False).st_size
            if self._shipped > size:
                self._shipped = 0  # nonsense: nothing beyond its end was ever sent
            data = read_plain(self._path("log.blocks"), size // DIGEST_BLOCK * 32)
            self._digest = LogDigest([data[i : i + 32] for i in range(0, len(data) - 31, 32)])
            self._noted = len(self._digest.blocks)
        except OSError:
            pass

    def _save(self) -> bool:
        document = {"shift": self._shift, "generation": self._generation, "shipped": self._shipped}
        try:
            write_with_spares(self.directory, "log.sent", json.dumps(document).encode(), False)
            return True
        except OSError:
            return False

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def pull(self, start: int) -> None:
        self.pulled, self.told_end = True, False
        self.sent = self.acked = start
        self._skipped = []
        self._read_marks()

    def ack(self, to: int) -> None:
        """Bytes below `to` are safe at the console: the window moves on, and disk may be given back."""
        self.acked = max(self.acked, min(to, self.sent))
        self._skipped = [gap for gap in self._skipped if gap[1] > self.acked]
        self._give_back()
        if self.told_end and self.acked >= self.sent:
            self.close()  # done with; thousands of closed runs must not keep a descriptor each

    def _give_back(self) -> None:
        # Only whole blocks that are hashed and noted: the digest must come out right in any later process too.
        safe = min(self.acked - self._shift, self._noted * DIGEST_BLOCK) - KEEP_BYTES
        end = safe // 65536 * 65536
        if end - self._shipped < PUNCH_STEP or self.fd < 0 or not self._can_punch:
            return
        start, self._shipped = self._shipped, end
        if self._save() and punch_hole(self.fd, start, end - start):
            with contextlib.suppress(OSError):
                if not self.closed:
                    make_spares(self.directory)  # on a full disk the note may have taken one
            return
        self._shipped = start  # not on this file system, or not even a note fits: it is all still there
        self._can_punch = False
        self._save()

    def frame(self, now: float, alone: bool = False) -> bytes | None:
        """The next frame of this run; b"" for "ask again soon", None for "nothing until something happens".

        Costs at most the reading, hashing and packing of FRAME_BYTES, so that nobody else waits long; where it is alone
        and far behind, of more at once, since each frame costs both ends something whatever its size.
        """
        if not self.pulled or self.told_end:
            return None
        room = WINDOW_BYTES - (self.sent - self.acked) + sum(to - start for start, to in self._skipped)
        if room <= 0:
            return None
        if not self._open():
            if self.closed and self.sent < self.final_size:
                return self._gap(self.final_size, "vanished")
            return self._end()
        size = os.fstat(self.fd).st_size
        self._watch_cuts(size)
        lost = self._lost_at(self.sent, size)
        if lost is not None:
            # Who cuts his log again and again is told about ever less often: each cut is a row at the console.
            self.not_before = now + min(CUT_PAUSE_S * self._cuts, MOST_CUT_PAUSE_S)
            return self._gap(*lost)
        start = self.sent - self._shift
        self._seen = max(self._seen, size + self._shift)
        if size <= start:
            return self._end()
        most = BULK_BYTES if alone and size - start >= 4 * BULK_BYTES else FRAME_BYTES
        length = min(most, size - start, room)
        data = os.pread(self.fd, self._up_to_hole(start, length), start)
        stamp = self._cut_stamp
        self._watch_cuts(os.fstat(self.fd).st_size)
        if stamp != self._cut_stamp or not data:
            return b""  # cut while we read: what came may be zeros. Look again.
        self.not_before = now + (QUIET_S if len(data) < FRAME_BYTES else 0)
        return self._data_frame(start, data, now)

    def _gap(self, to: int, reason: str) -> bytes:
        start, self.sent = self.sent, to
        self._skipped.append((start, to))
        return encode({"t": "gap", "run": self.run, "from": start, "to": to, "reason": reason})

    def _data_frame(self, start: int, data: bytes, now: float) -> bytes:
        if self._digest.size == start:
            self._hash(data)
        else:
            self._catch_up()
        head: Message = {"t": "log", "run": self.run, "from": self.sent, "to": self.sent + len(data), "z": 0}
        head["at"] = self._times(start, len(data))
        packed = zlib.compress(data, 1) if len(data) > 100 else data
        if len(packed) < len(data):
            head["z"], data = 1, packed
        self.sent = head["to"]
        return encode(head, data)

    def _catch_up(self) -> bool:
        """Hash a little of what an earlier serve sent. True if there may be more of it."""
        behind = self.sent - self._digest.size
        if behind <= 0 or self._holes or self._shift or self._digest.size < self._shipped or self.fd < 0:
            return False
        data = os.pread(self.fd, min(behind, 4 * FRAME_BYTES), self._digest.size)
        if not data:
            return False
        self._hash(data)
        return True

    def _hash(self, data: bytes) -> None:
        self._digest.update(data)
        if len(self._digest.blocks) == self._noted:
            return
        with contextlib.suppress(OSError):  # full disk: tried again with the next block
            fd = os.open(self._path("log.blocks"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fresh = b"".join(self._digest.blocks[self._noted :])
                if os.pwrite(fd, fresh, self._noted * 32) == len(fresh):
                    self._noted = len(self._digest.blocks)
            finally:
                os.close(fd)

    def _open(self) -> bool:
        if self.fd < 0:
            try:
                self.fd = os.open(self._path("log"), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                return False
        return True

    def _end(self) -> bytes | None:
        """log_end, when a closed run's whole log was sent and hashed."""
        if self._catch_up():
            return b""
        if not self.closed:
            return None
        self.told_end = True
        whole = not (self._holes or self._shift) and self._digest.size >= self.sent
        digest = self._digest.value() if whole else ""
        return encode({"t": "log_end", "run": self.run, "size": self.sent, "digest": digest})

    # -- what the host no longer has --

    def _watch_cuts(self, size: int) -> None:
        """Take in what the keeper punched, and notice that the program cut its own log."""
        try:
            found = os.stat(self._path("log.cut"))
            stamp = (found.st_mtime_ns, found.st_ino)
        except OSError:
            stamp = None
        generation = self._generation
        if stamp != self._cut_stamp:
            generation, self._holes = read_cut(self.directory)
            self._cut_stamp = stamp
        shrunk = size + self._shift < max(self._seen, 0 if self.closed else self.sent)
        if shrunk or generation > self._generation:
            # One byte more than we know of: how much was written and cut unseen, nobody can say.
            self._shift = max(self._seen, self.sent) + 1
            self._seen, self._shipped = self._shift, 0
            self._generation = max(generation, self._generation + 1)
            self._cuts += 1
            self._cut_stamp = (0, 0)
            self._save()

    def _lost_at(self, offset: int, size: int) -> Tuple[int, str] | None:
        """(to, reason) when the byte at this wire offset is gone. A hole is never punched up to the end of the file:
        one that reaches beyond it is of a log that the program has cut since, or nonsense."""
        if offset < self._shift:
            return self._shift, "truncated"
        place = offset - self._shift
        for start, end in self._holes:
            if start <= place < end <= size:
                return end + self._shift, "budget"
        if place < self._shipped:
            return self._shipped + self._shift, "shipped"
        return None

    def _up_to_hole(self, start: int, length: int) -> int:
        return min([length] + [hole[0] - start for hole in self._holes if hole[0] > start])

    # -- when it was written --

    def _read_marks(self) -> None:
        """Times for what was written before anybody looked: the keeper noted (size, time) now and then."""
        try:
            data = read_plain(self._path("log.marks"), MOST_MARKS * _MARK.size)
        except OSError:
            data = b""
        marks = _MARK.iter_unpack(data[: len(data) // _MARK.size * _MARK.size])
        self._marks = [
            (size, at) for size, at in marks if self.sent - self._shift < size < 1 << 53 and 0 < at < 1e11
        ]

    def _times(self, start: int, length: int) -> List[List[float]]:
        found: List[List[float]] = []
        while self._marks and self._marks[0][0] <= start:
            self._marks.pop(0)
        place = start
        for size, at in self._marks[:16]:
            found.append([place + self._shift, round(at, 3)])
            place = size
            if place >= start + length:
                return found
        return found + [[place + self._shift, round(time.time(), 3)]]


# ---------------------------------------------------------------------------------------------------------------
# Serve: one connection's loop. It never waits for anything but its descriptors, and never works long on one thing.
# ---------------------------------------------------------------------------------------------------------------

TICK_S = 1.0
OUT_BYTES = 192 * 1024  # log frames waiting for the pipe: few, so that a fact never stands behind megabytes
CONTROL_BYTES = 4 * 1024 * 1024
HELLO_S = 60.0
WORK_KEPT_S = 24 * 3600
DRAFT_KEPT_S = 3600


class Hangup(Exception):
    """The connection is over, or this serve should be. Runs go on."""


class Outbox:
    """What waits to be written: control messages before log frames, never into the middle of one."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._control: Deque[bytes] = collections.deque()
        self._bulk: Deque[bytes] = collections.deque()
        self._current = memoryview(b"")
        self.control_bytes = self.bulk_bytes = 0

    def control(self, data: bytes) -> None:
        self._control.append(data)
        self.control_bytes += len(data)

    def bulk(self, data: bytes) -> None:
        self._bulk.append(data)
        self.bulk_bytes += len(data)

    def waiting(self) -> bool:
        return bool(self._current or self._control or self._bulk)

    def flush(self) -> None:
        while True:
            if not self._current:
                if self._control:
                    self._current = memoryview(self._control.popleft())
                    self.control_bytes -= len(self._current)
                elif self._bulk:
                    self._current = memoryview(self._bulk.popleft())
                    self.bulk_bytes -= len(self._current)
                else:
                    return
            try:
                self._current = self._current[os.write(self.fd, self._current) :]
            except BlockingIOError:
                return
            except OSError as error:
                raise Hangup(str(error)) from None


class Errand:
    """What may take long, or hang on a driver or a user's file system: done by a child, answered through a pipe."""

    def __init__(
        self, home: Home, kind: str, act: Callable[[], Any], done: Callable[[Any], None], patience_s: float
    ) -> None:
        self.kind, self.done = kind, done
        self.deadline = time.monotonic() + patience_s
        self.fd, write = os.pipe()
        os.set_blocking(self.fd, False)
        self._heard = b""

        def work() -> None:
            data = memoryview(json.dumps(act()).encode())
            while data:
                data = data[os.write(write, data) :]

        try:
            self.pid = fork_detached(work, home.base, {write}, "trainyard-errand %s" % kind)
        except OSError:
            os.close(self.fd)
            raise
        finally:
            os.close(write)

    def hear(self) -> bool:
        """True when all has been heard, or nothing more will be."""
        try:
            data = os.read(self.fd, 1 << 20)
        except (BlockingIOError, InterruptedError):
            return False
        self._heard += data
        return not data or len(self._heard) > MAX_PAYLOAD

    def answer(self) -> Any:
        """What it found, None when it failed, was killed, or took too long."""
        os.close(self.fd)
        try:
            return json.loads(self._heard.decode("utf-8"))
        except ValueError:
            return None


class Run:
    """What serve knows of one run."""

    def __init__(self, run: str, directory: str) -> None:
        self.run, self.directory = run, directory
        self.facts: Facts | None = None
        self.stamp: Tuple[int, int] = (0, 0)
        self.told: Tuple[int, int] = (0, 0)  # the stamp of the facts that the console has heard
        self.tail = Tail(run, directory)
        self.watch = -1
        self.stop: float | None = None
        self.work_key: Any = None  # from its order, until its facts tell it

    def refresh(self) -> None:
        """Read the facts again if they are another file now."""
        try:
            found = os.stat(os.path.join(self.directory, "facts.json"))
        except OSError:
            return
        stamp = (found.st_mtime_ns, found.st_ino)
        facts = load_facts(self.directory) if stamp != self.stamp else None
        if facts is not None:
            self.facts, self.stamp = facts, stamp
            self.tail.closed = self.closed
            self.tail.final_size = facts["log"].get("size", 0)

    def renew_tail(self) -> None:
        self.tail.close()
        closed, size = self.tail.closed, self.tail.final_size
        self.tail = Tail(self.run, self.directory)
        self.tail.closed, self.tail.final_size = closed, size

    @property
    def closed(self) -> bool:
        return self.facts is not None and self.facts["phase"] == "closed"


# ---------------------------------------------------------------------------------------------------------------
# Samples: how busy living runs are. Read by serve while a console listens; nothing is kept here, and nothing is read
# while nothing runs. A few milliseconds at a time, so that no log waits for it.
# ---------------------------------------------------------------------------------------------------------------

SAMPLE_S = 10.0
SAMPLE_SLICE_S = 0.02
# nvidia-smi takes a second where it is slow, and for ever where the driver hangs.
SMI_PATIENCE_S = 8.0
SMI = ["nvidia-smi", "--query-gpu=uuid,utilization.gpu,memory.used", "--format=csv,noheader,nounits"]


class Use:
    """What a run had used when it was looked at last."""

    def __init__(self, run: Run, now: float) -> None:
        self.due = now
        self.at = 0.0
        self.cpu_s: float | None = None
        order = read_json(os.path.join(run.directory, "order.json")) or {}
        gpus = order.get("gpus")
        self.gpus: List[str] = gpus if isinstance(gpus, list) else []


class Samples:
    def __init__(self) -> None:
        self.uses: Dict[str, Use] = {}
        self.load: Dict[str, List[int | None]] = {}
        self.smi: subprocess.Popen[bytes] | None = None
        self.smi_at = -SAMPLE_S
        self.smi_heard = False
        self.said = b""

    def take(self, runs: List[Run], free_mb: Callable[[], int]) -> Iterator[Message]:
        """The samples that are due now, as messages."""
        now = time.monotonic()
        living = [run for run in runs if run.facts is not None and run.facts["phase"] == "running"]
        self.uses = {run.run: self.uses.get(run.run) or Use(run, now) for run in living}
        self.look_at_gpus(now)
        for run in sorted(living, key=lambda run: self.uses[run.run].due):
            use = self.uses[run.run]
            if use.due > now or time.monotonic() - now > SAMPLE_SLICE_S:
                return
            if use.gpus and self.smi is not None and not self.smi_heard:
                continue  # the GPUs of this host are being asked for the first time
            use.due = now + SAMPLE_S
            sample = self.sample(run, use)
            if sample is not None:
                yield dict(sample, disk_free_mb=free_mb())

    def sample(self, run: Run, use: Use) -> Message | None:
        found = measured(run.facts or {})
        if found is None:
            return None
        (cpu_s, rss), now = found, time.monotonic()
        before, since = use.cpu_s, use.at
        use.cpu_s, use.at = cpu_s, now
        if before is None or now - since < 0.5:
            use.due = now + 1.0  # a share needs two looks; the first one comes soon
            return None
        return {
            "t": "sample",
            "run": run.run,
            "at": time.time(),
            "cpu": round(max(cpu_s - before, 0.0) / (now - since), 4),
            "rss_mb": rss >> 20,
            "gpus": {uuid: self.load[uuid] for uuid in use.gpus if uuid in self.load},
        }

    def look_at_gpus(self, now: float) -> None:
        """One nvidia-smi for all GPUs of all runs, begun now and read later: it is never waited for."""
        if self.smi is not None:
            self.hear_smi(now)
        elif now - self.smi_at >= SAMPLE_S and any(use.gpus for use in self.uses.values()):
            self.smi_at, self.said = now, b""
            try:
                self.smi = subprocess.Popen(
                    SMI,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError:
                return
            assert self.smi.stdout is not None
            os.set_blocking(self.smi.stdout.fileno(), False)

    def hear_smi(self, now: float) -> None:
        assert self.smi is not None and self.smi.stdout is not None
        try:
            data = os.read(self.smi.stdout.fileno(), 65536)
        except BlockingIOError:
            if now - self.smi_at < SMI_PATIENCE_S:
                return
            data, self.said = b"", b""
            self.close()
        self.said = (self.said + data)[-65536:]
        if not data:
            self.smi.stdout.close()
            self.smi.poll()
            self.smi, self.load, self.smi_heard = None, read_load(self.said), True

    def close(self) -> None:
        if self.smi is not None and self.smi.poll() is None:
            self.smi.kill()


def read_load(text: bytes) -> Dict[str, List[int | None]]:
    """UUID → [utilisation in percent, memory in MiB]; None for what the card does not tell."""
    found: Dict[str, List[int | None]] = {}
    for line in text.decode("utf-8", "replace").splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and _GPU.match(parts[0]):
            found[parts[0]] = [int(part) if part.isdigit() else None for part in parts[1:]]
    return found


def measured(facts: Facts) -> Tuple[float, int] | None:
    """(CPU seconds used so far, bytes of memory) of all of a run."""
    cgroup, pid = facts.get("cgroup"), facts.get("pid")
    used = _counter(os.path.join(cgroup, "cpu.stat"), "usage_usec") if cgroup else None
    if cgroup and used is not None:
        kinds = [_counter(os.path.join(cgroup, "memory.stat"), kind) for kind in ("anon", "shmem")]
        if None not in kinds:
            return used / 1e6, sum(kind or 0 for kind in kinds)
    if not isinstance(pid, int) or pid <= 0:
        return None
    pids = family(pid)
    times = [found for found in map(read_use, pids) if found is not None]
    if not times:
        return None
    memory = sum(rss for _, rss in times)
    return (used / 1e6 if used is not None else sum(cpu for cpu, _ in times)), memory


def family(pid: int) -> List[int]:
    """The replica, its keeper (which inherits orphans, and the CPU time of those it buried), and all below it."""
    process = read_process(pid)
    if process is None:
        return []
    root = process.parent if _is_keeper(process.parent) else pid
    if not os.path.exists("/proc/self/task/%d/children" % os.getpid()):  # as the kernel was built
        return [root, *descendants({root}, all_processes())]
    found, todo = [root], [root]
    while todo:
        below = children_of(todo.pop())
        found += below
        todo += below
    return found


def children_of(pid: int) -> List[int]:
    """Each thread has children of its own. Whoever ends while we look has none any more."""
    found: List[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/%d/task" % pid):
            with contextlib.suppress(OSError), open("/proc/%d/task/%s/children" % (pid, task)) as file:
                found += [int(word) for word in file.read().split()]
    return found


def _is_keeper(pid: int) -> bool:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return pid > 1 and file.read(64).startswith(b"trainyard-")
    except OSError:
        return False


def read_use(pid: int) -> Tuple[float, int] | None:
    """(CPU seconds of it and of its buried children, resident bytes)."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
        ticks = sum(int(field) for field in fields[11:15])
        return ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return None


class Serve:
    """The stream on stdin and stdout."""

    def __init__(self, in_fd: int, out_fd: int, umask: int) -> None:
        self.in_fd, self.umask = in_fd, umask
        self.out = Outbox(out_fd)
        self.decoder = Decoder()
        self.home: Home | None = None
        self.runs: Dict[str, Run] = {}
        self.active: Deque[Run] = collections.deque()
        self.forgotten: Set[str] = set()
        self.inotify = Inotify()
        self.watches: Dict[int, Run] = {}
        self.base_watch = -1
        self.token = ""
        self.mark = 0
        self.samples = Samples()
        self.boot_id = boot_id()
        self.errands: Dict[int, Errand] = {}
        self.left_work: Dict[str, bool] = {}  # of forgotten runs: is it to be kept for a day?
        self.untidy = False
        self.watched_gpus: List[str] = []
        self.seen_free: Set[str] = set()
        self.told_gpus: Any = None
        self.gpu_look_at = 0.0
        self.next_tick = time.monotonic() + TICK_S
        self.deadline: float | None = time.monotonic() + HELLO_S

    # -- the loop --

    def run_loop(self) -> None:
        self.wake, write = os.pipe()
        for fd in (self.in_fd, self.out.fd, self.wake, write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)
        self.out.control(PREFACE)
        gc.freeze()  # forked keepers then share our pages instead of copying them at their first collection
        try:
            while True:
                self.turn()
        except Hangup:
            pass
        except WireError as error:
            self.say({"t": "error", "about": "wire", "message": str(error)})
            self.last_words()
        finally:
            self.samples.close()

    def turn(self) -> None:
        self.produce()
        self.out.flush()
        poll = select.poll()
        if self.out.control_bytes < CONTROL_BYTES:  # a console that does not listen is not listened to
            poll.register(self.in_fd, select.POLLIN)
        poll.register(self.out.fd, select.POLLOUT if self.out.waiting() else 0)
        poll.register(self.wake, select.POLLIN)
        if self.inotify.fd >= 0:
            poll.register(self.inotify.fd, select.POLLIN)
        for fd in self.errands:
            poll.register(fd, select.POLLIN)
        for fd, event in poll.poll(self.patience() * 1000):
            if fd == self.in_fd:
                self.listen()
            elif fd in self.errands:
                if self.errands[fd].hear():
                    self.end_errand(fd)
            elif fd == self.inotify.fd:
                self.notice()
            elif fd == self.wake:
                os.read(fd, 4096)
                self.reap()
            elif event & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                raise Hangup("nobody reads any more")
        if time.monotonic() >= self.next_tick:
            self.tick()

    def patience(self) -> float:
        now = time.monotonic()
        until = self.next_tick
        if self.active and self.out.bulk_bytes < OUT_BYTES:
            until = min(until, min(run.tail.not_before for run in self.active))
        # Rounded up to poll's millisecond: waking too early would spin until the time has come.
        return max(0.0, until - now + (0.0009 if until > now else 0.0))

    def produce(self) -> None:
        """Log frames, each run in turn, for as long as the pipe takes them, but not for long."""
        now = began = time.monotonic()
        for _ in range(len(self.active)):
            if self.out.bulk_bytes >= OUT_BYTES or now - began > 0.002:
                return
            run = self.active.popleft()
            if now >= run.tail.not_before:
                try:
                    frame = run.tail.frame(now, alone=not self.active)
                except (ArithmeticError, LookupError, OSError, TypeError, ValueError, WireError) as error:
                    # Its files may hold anything. Asked for again, it begins with what is left of them.
                    frame = None
                    if not isinstance(error, OSError):
                        run.renew_tail()
                    self.say(
                        {
                            "t": "error",
                            "about": "log",
                            "run": run.run,
                            "message": "%s" % (error or repr(error)),
                        }
                    )
                if frame is None:
                    continue
                if frame:
                    self.out.bulk(frame)
                now = time.monotonic()
            self.active.append(run)

    def stir(self, run: Run) -> None:
        """This run's log may have something to send."""
        if run.tail.pulled and not run.tail.told_end and run not in self.active:
            self.active.append(run)

    def listen(self) -> None:
        try:
            data = os.read(self.in_fd, 256 * 1024)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise Hangup(str(error)) from None
        if not data:
            raise Hangup("the console hung up")
        found = self.decoder.feed(data)
        while found:
            for message, payload in found:
                self.hear(message, payload)
            found = self.decoder.feed(b"")  # raises now if what followed was broken

    def hear(self, message: Message, payload: bytes) -> None:
        kind = message["t"]
        handler = self.HANDLERS.get(kind)
        try:
            if handler is None:
                raise ValueError("this runner knows no %.40r" % kind)
            if self.home is None and kind not in ("hello", "ping"):
                self.say({"t": "error", "about": kind[:40], "message": "hello comes first"})
                self.last_words()
                raise Hangup("no hello")
            handler(self, message, payload)
        except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
            run = message.get("run")
            answer = {"t": "error", "about": kind[:40], "message": ("%s" % (error or repr(error)))[:1000]}
            if isinstance(error, KeyError):
                answer["message"] = "%s is missing" % error
            if is_run_id(run):
                answer["run"] = run
            self.say(answer)

    def say(self, message: Message) -> None:
        try:
            data = encode(message)
        except (WireError, ValueError) as error:  # somebody has been at the facts by hand
            words = "%s of %s cannot be told: %s" % (message["t"], message.get("run"), error)
            data = encode({"t": "error", "about": message["t"], "message": words[:500]})
        self.out.control(data)

    def last_words(self) -> None:
        """Give what is still to be said a moment to leave."""
        until = time.monotonic() + 2
        try:
            while self.out.waiting() and time.monotonic() < until:
                self.out.flush()
                select.select([], [self.out.fd], [], 0.1)
        except (Hangup, OSError):
            pass

    def notice(self) -> None:
        """Something happened in a directory that we watch."""
        touched: Dict[int, int] = {}
        for watch, mask in self.inotify.read():
            touched[watch] = touched.get(watch, 0) | mask
            if mask & IN_Q_OVERFLOW:
                for run in self.runs.values():
                    self.look(run)
        for watch, mask in touched.items():
            if watch == self.base_watch:
                self.check_owner()
            elif watch in self.watches:
                run = self.watches[watch]
                if mask & IN_MOVED_TO:
                    self.look(run)
                else:
                    self.stir(run)

    def look(self, run: Run) -> None:
        """Tell this run's facts if they are news, and go on with its log."""
        run.refresh()
        if run.stamp != run.told:
            failpoint("before_reply")
            self.tell(run)
        self.stir(run)

    def tell(self, run: Run) -> None:
        if run.facts is not None:
            run.told = run.stamp
            self.say(dict(run.facts, t="fact"))
            if run.closed:
                self.unwatch(run)

    def reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if pid == 0:
                break
        for run in list(self.runs.values()):
            if not run.closed:
                self.check_alive(run)

    def tick(self) -> None:
        self.next_tick = time.monotonic() + (TICK_S if self.inotify.fd >= 0 else 0.05)
        if self.home is None:
            if self.deadline and time.monotonic() > self.deadline:
                raise Hangup("no hello")
            return
        self.check_owner()
        self.hurry_errands()
        if self.untidy:
            self.tidy()
        if self.watched_gpus and time.monotonic() >= self.gpu_look_at:
            self.look_at_watched()
        for run in list(self.runs.values()):
            if not run.closed:
                self.look(run)
                if run.stop is not None:
                    self.poke(run)
                self.check_alive(run)
        self.sample()

    def sample(self) -> None:
        """Worth nothing a minute later: while the console does not listen, none is taken."""
        if self.out.control_bytes < MAX_HEADER:
            base = self.at_home().base
            for message in self.samples.take(list(self.runs.values()), lambda: free_bytes(base) >> 20):
                self.say(message)

    # -- errands --

    def errand(
        self, kind: str, act: Callable[[], Any], done: Callable[[Any], None], patience_s: float = 60.0
    ) -> bool:
        """Have `act` done by a child and `done` called with its answer. One of a kind at a time, else False."""
        if any(errand.kind == kind for errand in self.errands.values()):
            return False
        try:
            errand = Errand(self.at_home(), kind, act, done, patience_s)
        except OSError:
            return False  # no process, no descriptor: whoever wants it asks again
        self.errands[errand.fd] = errand
        return True

    def end_errand(self, fd: int) -> None:
        errand = self.errands.pop(fd)
        errand.done(errand.answer())

    def hurry_errands(self) -> None:
        """A child that hangs is killed. If even that does not end it, its pipe stays open and its kind stays out."""
        for errand in self.errands.values():
            if time.monotonic() >= errand.deadline:
                with contextlib.suppress(OSError):
                    os.kill(errand.pid, signal.SIGKILL)

    # -- GPUs that the console keeps out of use until they are proved free --

    def on_watch(self, message: Message, payload: bytes) -> None:
        """Look at these now and then. Free is who was free in two looks, or in one if the console says `soon`."""
        self.watched_gpus = self.gpu_names(message["gpus"])
        self.seen_free &= set(self.watched_gpus)
        self.seen_free |= set(self.gpu_names(message.get("soon") or []))
        self.told_gpus = None
        self.look_at_watched()

    def gpu_names(self, found: Any) -> List[str]:
        if not isinstance(found, list) or not all(isinstance(g, str) and _GPU.match(g) for g in found):
            raise ValueError("gpus must be a list of GPU UUIDs")
        return list(found[:256])

    def look_at_watched(self) -> None:
        gpus = list(self.watched_gpus)
        self.gpu_look_at = time.monotonic() + GPU_LOOK_S
        if gpus:
            locks = {uuid: self.at_home().gpu_lock(uuid) for uuid in gpus}
            self.errand("gpus", lambda: report_on_gpus(locks), self.tell_gpus)

    def tell_gpus(self, report: Any) -> None:
        if report is None or set(report["gpus"]) != set(self.watched_gpus):
            return  # it hung, or is about others than those that are watched now: the next look is due anyway
        free = {u for u, held in report["gpus"].items() if not held and not report["error"]}
        report["free"], self.seen_free = sorted(free & self.seen_free), free
        # Told again only when somebody came or went: that ages grow is no news.
        news = [
            report["error"],
            sorted((u, sorted(h["pid"] for h in held)) for u, held in report["gpus"].items()),
        ]
        if news != self.told_gpus or report["free"]:
            self.told_gpus = news
            self.say(dict(report, t="gpus"))

    def on_evict(self, message: Message, payload: bytes) -> None:
        """A person said that these processes are to go: exactly these, and only if they are on that GPU now."""
        [gpu] = self.gpu_names([message["gpu"]])
        pids = {(int(pid), int(ticks)) for pid, ticks in message["pids"]}

        def act() -> List[str]:
            return evict(gpu, pids)

        def done(words: Any) -> None:
            self.say({"t": "evicted", "gpu": gpu, "words": words or ["it took too long"]})
            self.gpu_look_at = 0.0

        if not self.errand("evict", act, done):
            raise ValueError("another eviction is going on")

    # -- hello, inventory --

    def on_hello(self, message: Message, payload: bytes) -> None:
        epoch = message["epoch"]
        if message["v"] != PROTOCOL or type(epoch) is not int or self.home is not None:
            self.refuse("this runner speaks version %d, once, with a whole number as epoch" % PROTOCOL)
        try:
            home = Home(message["deployment"])
            home.make()
        except (OSError, TypeError, ValueError) as error:
            self.refuse(str(error))
        stored = _stored_number(home.epoch)
        if epoch < stored:
            self.refuse(
                "epoch %d is over, this host has seen %d: was the console restored?" % (epoch, stored)
            )
        if epoch > stored:
            write_file(home.epoch, b"%d" % epoch, durable=True)
        self.home = home
        self.mark = _stored_number(home.mark)
        self.token = "%d.%s" % (os.getpid(), os.urandom(8).hex())
        write_file(home.owner, self.token.encode())
        self.base_watch = self.inotify.watch(home.base, IN_MOVED_TO)
        self.forgotten = read_forgotten(home)
        self.say(self.greeting(home))
        self.on_runs(message, payload)
        self.tidy(look=True)

    def refuse(self, why: str) -> NoReturn:
        self.say({"t": "error", "about": "hello", "message": why})
        self.last_words()
        raise Hangup(why)

    def greeting(self, home: Home) -> Message:
        user = pwd.getpwuid(os.getuid()).pw_name
        return {
            "t": "hello",
            "v": PROTOCOL,
            "sha": own_digest(),
            "boot_id": self.boot_id,
            "python": platform.python_version(),
            "wall": time.time(),
            "mono": time.monotonic(),
            "uid": os.getuid(),
            "user": user,
            "home": os.path.dirname(home.root),
            "free_mb": free_bytes(home.base) >> 20,
            "containment": containment_level(),
            "mark": self.mark,
        }

    def on_runs(self, message: Message, payload: bytes) -> None:
        """The inventory: every run that has a directory here, in pages."""
        page: List[Facts] = []
        size = 0
        for name in sorted(os.listdir(self.at_home().runs)):
            if not is_run_id(name):
                continue
            run = self.find(name)
            run.refresh()
            self.check_alive(run)
            run.told = run.stamp
            facts = run.facts or dict(new_facts(name), claimed_at=None, boot_id=None)
            length = len(json.dumps(facts)) + 1
            if size + length > MAX_HEADER - 1024:
                self.say({"t": "inventory", "runs": page, "last": False})
                page, size = [], 0
            page.append(facts)
            size += length
        self.say({"t": "inventory", "runs": page, "last": False})
        self.say({"t": "inventory", "runs": [], "last": True})

    def at_home(self) -> Home:
        assert self.home is not None
        return self.home

    def find(self, name: str) -> Run:
        """The run of that name, watched while it is not closed. Does not ask whether its directory exists."""
        if name not in self.runs:
            run = self.runs[name] = Run(name, self.at_home().run(name))
            run.watch = self.inotify.watch(run.directory, IN_MODIFY | IN_MOVED_TO)
            if run.watch >= 0:
                self.watches[run.watch] = run
            run.refresh()  # after the watch was set, so that no change falls between
            if run.closed:
                self.unwatch(run)
        return self.runs[name]

    def unwatch(self, run: Run) -> None:
        if run.watch >= 0:
            self.inotify.unwatch(run.watch)
            self.watches.pop(run.watch, None)
            run.watch = -1

    def known(self, message: Message) -> Run:
        """The run that a message names; ValueError if the name is not one or nothing of it is here."""
        directory = self.at_home().run(message["run"])
        if not os.path.isdir(directory):
            raise ValueError("there is no such run here")
        return self.find(message["run"])

    def check_owner(self) -> None:
        try:
            current = read_plain(self.at_home().owner, 200)
        except OSError:
            current = b""
        if current != self.token.encode():
            self.say({"t": "error", "about": "serve", "message": "a newer connection has taken over"})
            self.last_words()
            raise Hangup("superseded")

    # -- orders --

    def on_start(self, message: Message, payload: bytes) -> None:
        name = message["run"]
        home = self.at_home()
        directory = home.run(name)
        self.check_owner()
        if name in self.forgotten:
            facts = close_unstarted(
                new_facts(name), "tombstone", "this run was here before and was forgotten"
            )
            self.say(dict(facts, t="fact"))
            return
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            run = self.find(name)
            run.refresh()
            self.tell(run)
            return
        failpoint("after_mkdir")
        lock = take_lock(os.path.join(directory, "lock"))
        failpoint("after_lock")
        if lock < 0:
            return  # a newer serve came by just now and is closing this claim
        run = self.find(name)
        if free_bytes(directory) < disk_floor():
            try:
                self.refuse_full(run)
            finally:
                os.close(lock)
            return
        document: Dict[str, Any] | Refused
        try:
            order = unpack_order(payload, bool(message.get("z")))
            document, run.work_key = order, order.get("work_key")
        except Refused as refused:
            document = refused
        keeper = Keeper(home, name, self.umask)
        try:
            fork_detached(lambda: keeper.outer(document), directory, {lock}, "trainyard-keeper %s" % name)
        finally:
            os.close(lock)

    def refuse_full(self, run: Run) -> None:
        """Not even the refusal may fit on the disk: then the claim is given back, and an error says why."""
        message = "less than %d MB are free at %s" % (disk_floor() >> 20, self.at_home().base)
        try:
            save_facts(run.directory, close_unstarted(new_facts(run.run), "refused", message, "disk_full"))
        except OSError:
            self.unwatch(run)
            del self.runs[run.run]
            shutil.rmtree(run.directory, ignore_errors=True)
            raise
        self.look(run)

    def on_stop(self, message: Message, payload: bytes) -> None:
        grace = message["grace_s"]
        if isinstance(grace, bool) or not isinstance(grace, (int, float)):
            raise ValueError("grace_s must be a number")
        name = message["run"]
        directory = self.at_home().run(name)
        self.check_owner()
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            pass
        else:
            self.entomb(name, directory)
            return
        run = self.find(name)
        run.refresh()
        if run.closed:
            self.tell(run)
            return
        deadline = time.monotonic() + min(max(0.0, grace), 1e7)
        run.stop = deadline if run.stop is None else min(run.stop, deadline)
        found = read_json(os.path.join(directory, "stop.json"))
        if found and found.get("boot_id") == self.boot_id:
            run.stop = min(run.stop, read_deadline(directory) or run.stop)
        try:
            document = {"deadline": run.stop, "boot_id": self.boot_id}
            write_file(os.path.join(directory, "stop.json"), json.dumps(document).encode())
        except OSError:
            pass  # a full disk: the poke says it too, and is repeated
        self.poke(run)

    def entomb(self, name: str, directory: str) -> None:
        """A stop came before its start: the directory now stands in the way of that start, for ever."""
        failpoint("after_tombstone")
        lock = take_lock(os.path.join(directory, "lock"))
        try:
            if lock >= 0:
                facts = close_unstarted(new_facts(name), "tombstone", "stopped before it was started")
                save_facts(directory, facts, durable=True)
                fsync_directory(self.at_home().runs)
        finally:
            if lock >= 0:
                os.close(lock)
        run = self.find(name)
        run.refresh()
        self.tell(run)

    def poke(self, run: Run) -> None:
        try:
            fd = os.open(os.path.join(run.directory, "control"), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # no keeper listens (yet): stop.json waits for it, the next tick pokes again
        try:
            os.write(fd, ("stop %r\n" % run.stop).encode())
        except OSError:
            pass
        finally:
            os.close(fd)

    def on_pull(self, message: Message, payload: bytes) -> None:
        start = message["from"]
        run = self.known(message)
        if type(start) is not int or start < 0:
            raise ValueError("from must be an offset")
        run.tail.pull(start)
        self.look(run)

    def on_unpull(self, message: Message, payload: bytes) -> None:
        run = self.known(message)
        run.tail.pulled = False
        run.tail.close()

    def on_ack(self, message: Message, payload: bytes) -> None:
        to = message["to"]
        run = self.known(message)
        if type(to) is not int or to < 0:
            raise ValueError("to must be an offset")
        run.tail.ack(to)
        self.stir(run)

    def on_ping(self, message: Message, payload: bytes) -> None:
        self.say({"t": "pong", "id": message.get("id"), "wall": time.time(), "mono": time.monotonic()})
        mark = message.get("mark")
        if type(mark) is int and mark >= self.mark + _MARKS_APART:
            # A database that was restored from before this is known by it. A full disk may leave it out.
            with contextlib.suppress(OSError):
                write_file(self.at_home().mark, b"%d" % mark)
                self.mark = mark

    def on_forget(self, message: Message, payload: bytes) -> None:
        name, home = message["run"], self.at_home()
        directory = home.run(name)
        self.check_owner()
        if os.path.isdir(directory):
            run = self.find(name)
            run.refresh()
            if not run.closed:
                raise ValueError("the run is not closed")
            failpoint("before_delete")
            self.drop(run, keep_work=message.get("work") is not True)
        self.say({"t": "forgotten", "run": name})

    def drop(self, run: Run, keep_work: bool) -> None:
        """Remember the name, move the directory out of the way at once, delete it in a process of its own."""
        home = self.at_home()
        remember(home, run.run)
        self.forgotten.add(run.run)
        self.unwatch(run)
        run.tail.close()
        run.tail.pulled = False
        del self.runs[run.run]
        key = (run.facts or {}).get("work_key")
        throw_away(home, run.directory)
        if is_run_id(key):
            self.left_work[str(key)] = keep_work
        self.untidy = True

    def tidy(self, look: bool = False) -> None:
        """Delete shared work directories that no run here uses any more, a day after their last run was forgotten.

        A day, because the restart that wants to find its files there may be ordered after its predecessor is forgotten.
        A child looks at them, for they may hang; they are moved here, where it is known which run has come since. What
        is in the trash is deleted by another child, however much it is.
        """
        home, left = self.at_home(), dict(self.left_work)
        self.untidy = False
        if look or left:
            if self.errand("sweep", lambda: old_work(home, left), self.end_sweep):
                self.left_work = {}
            else:
                self.untidy = True
        if os.listdir(home.trash):
            self.untidy |= not self.errand("trash", lambda: clear(home.trash), lambda answer: None, math.inf)

    def end_sweep(self, names: Any) -> None:
        home = self.at_home()
        used = {run.work_key or (run.facts or {}).get("work_key") for run in self.runs.values()}
        for name in names if isinstance(names, list) else ():
            if name not in used:
                with contextlib.suppress(OSError):  # a mount point cannot be moved
                    throw_away(home, os.path.join(home.work, name))
                    self.untidy = True

    # -- runs without a keeper --

    def check_alive(self, run: Run) -> None:
        """Nobody holds the lock of a run that is not closed: its keepers are dead. Close it, once and for all."""
        if run.closed:
            return
        try:
            lock = take_lock(os.path.join(run.directory, "lock"))
        except OSError:
            return  # its directory is gone, or we have no descriptors: the next tick looks again
        if lock < 0:
            return
        try:
            facts = load_facts(run.directory)
            if facts is not None and facts["phase"] != "closed" and facts["boot_id"] != self.boot_id:
                close_after_reboot(run.directory, facts)
            elif facts is None or facts["phase"] != "closed":
                keeper = Keeper(self.at_home(), run.run, self.umask)
                title = "trainyard-mender %s" % run.run
                fork_detached(keeper.mend, run.directory, {lock}, title)
                return
        except OSError:
            return  # no process, no disk: the next tick tries again
        finally:
            os.close(lock)
        self.look(run)

    HANDLERS: Dict[str, Callable[["Serve", Message, bytes], None]] = {
        "hello": on_hello,
        "start": on_start,
        "stop": on_stop,
        "pull": on_pull,
        "unpull": on_unpull,
        "ack": on_ack,
        "forget": on_forget,
        "runs": on_runs,
        "ping": on_ping,
        "watch": on_watch,
        "evict": on_evict,
    }


def close_after_reboot(directory: str, facts: Facts) -> None:
    """The host has booted since: whatever ran is over, that needs no look."""
    log = os.path.join(directory, "log")
    size = os.path.getsize(log) if os.path.exists(log) else 0
    if facts["phase"] != "ended":
        facts.update(
            why="reboot", message="the host was rebooted; how it ended is not known", never_started=None
        )
    facts.update(phase="closed", closed_at=time.time(), survivors=[])
    facts["log"] = dict(facts["log"], size=size, final=True)
    save_facts(directory, facts, durable=True)
    clean_directory(directory)


# The console's mark grows by one a second; so often it is written down.
_MARKS_APART = 10


def _stored_number(path: str) -> int:
    try:
        return int(read_plain(path, 64))
    except (OSError, ValueError):
        return 0


# Names of forgotten runs, so that a start frame that was long on its way starts nothing twice. Those of the last
# months are enough; the file stays small.
_REMEMBERED = 20000


def read_forgotten(home: Home) -> Set[str]:
    try:
        names = read_plain(home.forgotten, 1 << 24).decode("utf-8", "replace").split("\n")
    except OSError:
        return set()
    if len(names) > 2 * _REMEMBERED:
        names = names[-_REMEMBERED:]
        write_file(home.forgotten, "\n".join(names).encode())
    return set(names) - {""}


def remember(home: Home, run: str) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(home.forgotten, flags, 0o600)
    try:
        os.write(fd, run.encode() + b"\n")
    finally:
        os.close(fd)


def throw_away(home: Home, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, os.path.join(home.trash, os.urandom(8).hex()))


def clear(trash: str) -> None:
    for name in os.listdir(trash):
        shutil.rmtree(os.path.join(trash, name), ignore_errors=True)


def old_work(home: Home, left: Dict[str, bool]) -> List[str]:
    """Note when these were left, then name those that nobody has used for a day. Drafts of runners go at once."""
    for name, keep in left.items():
        with contextlib.suppress(OSError):
            os.utime(os.path.join(home.work, name), None if keep else (0, 0))
    programs = os.path.join(home.root, "bin")
    for name in os.listdir(programs) if os.path.isdir(programs) else ():
        if name.startswith(".put-"):  # whoever was writing it died; one that is being written is younger
            with contextlib.suppress(OSError):
                if os.lstat(os.path.join(programs, name)).st_mtime < time.time() - DRAFT_KEPT_S:
                    os.unlink(os.path.join(programs, name))
    found = []
    for name in os.listdir(home.work):
        with contextlib.suppress(OSError):
            if os.lstat(os.path.join(home.work, name)).st_mtime < time.time() - WORK_KEPT_S:
                found.append(name)
    return found


def own_digest() -> str:
    with open(os.path.abspath(__file__), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def containment_level() -> str:
    return "cgroup" if delegated_cgroup() else "subreaper"


# ---------------------------------------------------------------------------------------------------------------
# Shell: a login's terminal, put into the place and environment of a run. It execs, so that nothing relays keys.
# ---------------------------------------------------------------------------------------------------------------


def shell() -> NoReturn:
    """On a terminal from sshd: one line of JSON in, one out, then bash. Ends with a status of 1 when refused."""
    saved = None
    if os.isatty(0):
        saved = termios.tcgetattr(0)
        tty.setraw(0)  # or the terminal would echo the request, and turn our newlines into two characters
    os.write(1, SHELL_PREFACE)
    try:
        request = decode_object(_read_line(0))
        argv, env, work = open_shell(request)
        os.chdir(work)
    except (WireError, OSError, ValueError, KeyError, TypeError) as error:
        os.write(1, json.dumps({"error": "%s" % (error or repr(error))}).encode("ascii") + b"\n")
        os._exit(1)
    if saved is not None:
        saved[0] |= termios.ICRNL | termios.IXON
        saved[1] |= termios.OPOST | termios.ONLCR
        saved[3] |= (
            termios.ICANON | termios.ECHO | termios.ECHOE | termios.ECHOK | termios.ISIG | termios.IEXTEN
        )
    os.write(1, b'{"ok":true}\n')
    if saved is not None:
        termios.tcsetattr(0, termios.TCSADRAIN, saved)
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(2, ("%s: %s\r\n" % (argv[0], error.strerror)).encode())
    os._exit(127)


def _read_line(fd: int) -> bytes:
    """One line, byte by byte: what is typed behind it belongs to the shell."""
    line = b""
    while len(line) < MAX_HEADER:
        byte = os.read(fd, 1)
        if byte in (b"\n", b"\r"):
            return line
        if not byte:
            raise WireError("the connection ended before the request")
        line += byte
    raise WireError("the request is over %d bytes" % MAX_HEADER)


def open_shell(request: Message) -> Tuple[List[str], Dict[str, str], str]:
    """(argv, environment, directory) of a shell in a running run, this process already in its cgroup."""
    home = Home(request["deployment"])
    directory = home.run(request["run"])
    facts = load_facts(directory)
    document = read_json(os.path.join(directory, "order.json"))
    if facts is None or facts["phase"] != "running" or document is None:
        raise ValueError("the run is not running")
    if facts["boot_id"] != boot_id():
        raise ValueError("the run ended with a reboot of the host")
    try:
        order = parse_order(document)
    except Refused as refused:
        raise ValueError("the run's order is damaged: %s" % refused) from None
    if not order.web_access:
        raise ValueError("this run does not allow shells")
    env = build_env(order, facts["run"], facts["work"], facts["mark"])
    env["TERM"] = os.environ.get("TERM", "xterm-256color")
    for name, value in (request.get("env") or {}).items():
        env[str(name)] = str(value)
    env["TRAINYARD_MARK"] = facts["mark"]
    argv = [str(part) for part in request.get("argv") or []]
    if not argv:
        argv = [shutil.which("bash", path=env["PATH"]) or "/bin/sh", "-i"]
    for group in (facts["cgroup"], facts["memory_cgroup"]):
        if group:
            join_cgroup(group)
    return argv, env, facts["work"]


# ---------------------------------------------------------------------------------------------------------------
# Probe: what this host is, in one line. Anything that cannot be found out is null, never an error.
# ---------------------------------------------------------------------------------------------------------------

_NETWORK_DISKS = {
    "nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "ceph", "beegfs", "afs", "9p", "fuse.sshfs"
}  # fmt: skip
_MEMORY_DISKS = {"tmpfs", "ramfs", "devtmpfs", "rootfs"}
_MOST_MOUNTS = 64


def probe() -> None:
    user = pwd.getpwuid(os.getuid())
    home = os.path.expanduser("~")
    level = containment_level()
    gpus, gpu_error = probe_gpus()
    inotify = Inotify()
    document = {
        "schema": 1,
        "python": platform.python_version(),
        "boot_id": boot_id(),
        "wall": time.time(),
        "hostname": socket.gethostname(),
        "user": user.pw_name,
        "uid": user.pw_uid,
        "home": home,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_mb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        "disk": probe_disk(home),
        "shared": probe_shared(),
        "gpus": gpus,
        "gpu_error": gpu_error,
        "gpu_topology": probe_topology() if len(gpus) > 1 else "",
        "gpu_unseen": open_devices()[1] if gpus else 0,
        "nvidia_smi": shutil.which("nvidia-smi") is not None,
        "runtimes": probe_runtimes(),
        "containment": level,
        "memory_limits": memory_limits_here(),
        "containment_text": (
            "a cgroup per run: a stop overlooks nothing that it started"
            if level == "cgroup"
            else "no delegated cgroup: processes are followed by kinship and by a mark in their environment"
        ),
        "logout": probe_logout(user.pw_name),
        "nofile": _limit(resource.RLIMIT_NOFILE),
        "nproc": _limit(resource.RLIMIT_NPROC),
        "inotify": inotify.fd >= 0 and inotify.watch(home, IN_MOVED_TO) >= 0,
        "sshd": probe_sshd("/etc/ssh"),
    }
    os.write(1, json.dumps(document).encode("ascii") + b"\n")


def _limit(which: int) -> int:
    soft = resource.getrlimit(which)[0]
    return 2**31 - 1 if soft == resource.RLIM_INFINITY else min(soft, 2**31 - 1)


def probe_gpus() -> Tuple[List[Dict[str, Any]], str | None]:
    if shutil.which("nvidia-smi") is None:
        return [], None
    query = "--query-gpu=index,uuid,name,memory.total"
    status, text = output_of(["nvidia-smi", query, "--format=csv,noheader,nounits"])
    if status != 0:
        return [], text.strip()[:1000] or "nvidia-smi ended with status %d" % status
    found = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4 and parts[0].isdigit() and _GPU.match(parts[1]):
            memory = int(parts[3]) if parts[3].isdigit() else 0
            found.append({"index": int(parts[0]), "uuid": parts[1], "model": parts[2], "memory_mb": memory})
    return found, None


def probe_topology() -> str:
    """How near the GPUs are to each other, as nvidia-smi draws it; the console reads the drawing."""
    status, text = output_of(["nvidia-smi", "topo", "-m"])
    return text[:65536] if status == 0 else ""


def probe_disk(home: str) -> Dict[str, Any]:
    found = os.statvfs(home)
    fstype = filesystem_type(home)
    return {
        "path": home,
        "free_mb": found.f_bavail * found.f_frsize >> 20,
        "total_mb": found.f_blocks * found.f_frsize >> 20,
        "fstype": fstype,
        "local": fstype not in _NETWORK_DISKS,
        "survives_reboot": fstype not in _MEMORY_DISKS,
        "writable": os.access(home, os.W_OK),
    }


def filesystem_type(path: str) -> str:
    """The type of the file system that holds `path`: that of the longest mount point above it."""
    path = os.path.realpath(path) + "/"
    best = ("", "unknown")
    for point, fstype, _ in mounts():
        if path.startswith(point.rstrip("/") + "/") and len(point) >= len(best[0]):
            best = (point, fstype)
    return best[1]


def mounts() -> List[Tuple[str, str, str]]:
    """(mount point, type, source) of each mount; nothing is touched, so one that hangs holds nobody up."""
    found = []
    with contextlib.suppress(OSError):
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
        for line in lines:
            before, _, after = line.partition(" - ")
            # Blanks and newlines in names stand there as octal numbers.
            words = before.split()[4:5] + after.split()[:2]
            point, fstype, source = [
                re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), word) for word in words
            ]
            found.append((point, fstype, source))
    return found


def probe_shared() -> List[Dict[str, Any]]:
    """Storage that other hosts may see too, and what is mounted below it."""
    every = mounts()
    shared = [point.rstrip("/") + "/" for point, fstype, _ in every if fstype in _NETWORK_DISKS]
    return [
        {"path": point, "fstype": fstype, "source": source, "network": fstype in _NETWORK_DISKS}
        for point, fstype, source in every
        if fstype in _NETWORK_DISKS or any(point.startswith(above) for above in shared)
    ][:_MOST_MOUNTS]


def probe_runtimes() -> List[Dict[str, str]]:
    found = []
    for name in ("docker", "podman", "apptainer", "singularity", "enroot"):
        if shutil.which(name):
            status, text = output_of([name, "version" if name == "enroot" else "--version"], 5.0)
            version = re.search(r"\d+\.\d[\w.+-]*", text) if status == 0 else None
            found.append({"name": name, "version": version.group(0) if version else ""})
    return found


def probe_logout(user: str) -> Dict[str, bool | None]:
    """Would logind kill what a login leaves behind? Null where there is no logind, which then cannot."""
    answer: Dict[str, bool | None] = {"kill_user_processes": None, "linger": None}
    if shutil.which("loginctl") is None:
        return answer
    status, text = output_of(["loginctl", "show-user", user, "--property=Linger"], 5.0)
    if status == 0 and "Linger=" in text:
        answer["linger"] = "Linger=yes" in text
    command = ["busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1"]
    status, text = output_of(command + ["org.freedesktop.login1.Manager", "KillUserProcesses"], 5.0)
    if status == 0:
        answer["kill_user_processes"] = text.split()[-1:] == ["true"]
    return answer


def probe_sshd(directory: str) -> Dict[str, int | str | None]:
    """sshd's limits as far as its files may be read: the first setting of a keyword counts, as sshd does it."""
    main = os.path.join(directory, "sshd_config")
    more = os.path.join(directory, "sshd_config.d")
    try:
        names = [os.path.join(more, name) for name in sorted(os.listdir(more)) if name.endswith(".conf")]
    except OSError:
        names = []
    found: Dict[str, str] = {}
    for name in names + [main]:
        try:
            with open(name, encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
        except OSError:
            return {"max_sessions": None, "max_startups": None}
        for line in lines:
            words = line.split("#")[0].replace("=", " ").split()
            if words and words[0].lower() == "match":
                break
            if len(words) == 2:
                found.setdefault(words[0].lower(), words[1])
    sessions = found.get("maxsessions", "10")
    return {
        "max_sessions": int(sessions) if sessions.isdigit() else None,
        "max_startups": found.get("maxstartups", "10:30:100"),
    }


def main(argv: List[str]) -> int:
    mode = argv[1] if len(argv) == 2 else ""
    if mode == "serve":
        umask = os.umask(0o077)
        Serve(0, 1, umask).run_loop()
    elif mode == "shell":
        shell()
    elif mode == "probe":
        probe()
    else:
        os.write(2, b"usage: runner.py serve|shell|probe\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
