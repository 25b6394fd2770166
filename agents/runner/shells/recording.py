"""The recording of a shell: what it shows, as asciicast v2. The process that holds the shell writes it.

Only output is recorded, and the size of the terminal: keys are not. Output is gathered for a tenth of a second, after
the viewers have got it, so that no echo waits. Secret values of the run are masked before anything is written.

The file grows at its end only, so that the console can fetch it by offsets. It keeps the beginning of a long recording
and its end: what comes later than HEAD_BYTES waits in memory, the newest TAIL_BYTES of it, until the shell is over. A
full disk is treated the same way. A lock on the file tells that its writer lives.
"""

from __future__ import annotations

import codecs
import collections
import contextlib
import fcntl
import hashlib
import json
import math
import os
import time
from typing import Any, Deque, Dict, Iterable, List, Tuple

from agents.runner.files import write_file
from agents.runner.logs.mask_patterns import MaskPatterns, blank

HEAD_BYTES, TAIL_BYTES = 56 << 20, 8 << 20
# A character takes six bytes in JSON at most, and each event a few more.
TAIL_CHARACTERS, EVENT_CHARACTERS = TAIL_BYTES // 6, 32
GATHER_S = 0.1
GATHER_BYTES = 256 * 1024
# A player reads a whole line before it shows anything of it.
LINE_CHARACTERS = 16 * 1024
DIRECTORY = "shells"


def path_of(run_directory: str, key: str) -> str:
    return os.path.join(run_directory, DIRECTORY, key + ".cast")


class Masker:
    """Bytes in, bytes with `*` in place of secrets out. What may be the beginning of a secret waits for its rest."""

    def __init__(self, values: Iterable[str]) -> None:
        self._patterns = MaskPatterns(values)
        self._rest = b""
        # So many bytes of the rest belong to a secret that was found already.
        self._found = 0

    def feed(self, data: bytes, last: bool = False) -> bytes:
        if not self._patterns.needles:
            return data
        data = self._rest + data
        spans = self._patterns.spans(data)
        if self._found:
            spans.append((0, self._found))
        end = len(data) - (0 if last else self._patterns.unfinished(data))
        self._rest = data[end:]
        self._found = max((stop - end for _, stop in spans if stop > end), default=0)
        shown = bytearray(data[:end])
        blank(shown, [(start, min(stop, end)) for start, stop in spans if start < end])
        return bytes(shown)


class Recorder:
    """The recorder of a shell that is not recorded. `due_at` is when `flush` is to be called."""

    due_at = math.inf
    # Whether output is recorded now, or why it is not.
    state: bool | str = False

    def append(self, data: bytes) -> None:
        """New output."""

    def resize(self, columns: int, rows: int) -> None:
        """The terminal has another size."""

    def flush(self, last: bool = False) -> None:
        """Write what was gathered."""

    def end(self, status: int) -> None:
        """The shell is over, with this wait status."""


class FileRecorder(Recorder):
    """Nothing here raises: a recording that fails harms no shell."""

    def __init__(self, path: str, header: Dict[str, Any], values: Iterable[str]) -> None:
        self.state = True
        self._path = path
        self._began = self._first_at = time.monotonic()
        self._pending: List[bytes] = []
        self._pending_bytes = 0
        self._masker = Masker(values)
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._digest = hashlib.sha256()
        self._size = 0
        self._limit = HEAD_BYTES
        self._is_cut = False
        self._unwritten = b""
        self._tail: Deque[Tuple[float, str, str]] = collections.deque()
        self._tail_characters = self._left_out = 0
        self._fd = self._open()
        self._write(json.dumps(header, ensure_ascii=False).encode("utf-8", "replace") + b"\n")

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            os.makedirs(os.path.dirname(self._path), 0o700, exist_ok=True)
            fd = os.open(self._path, flags, 0o600)
            with contextlib.suppress(OSError):  # a file system without locks: the note at the end tells
                fcntl.flock(fd, fcntl.LOCK_EX)
            return fd
        except OSError as error:
            self.state = error.strerror or "%s" % error
            return -1

    # While the shell is open

    def append(self, data: bytes) -> None:
        """No system call, unless very much has come."""
        if not self._pending:
            self._first_at = time.monotonic()
            self.due_at = self._first_at + GATHER_S
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= GATHER_BYTES:
            self.flush()

    def resize(self, columns: int, rows: int) -> None:
        self.flush()
        self._event(time.monotonic(), "r", "%dx%d" % (columns, rows))

    def flush(self, last: bool = False) -> None:
        data, self._pending, self._pending_bytes = b"".join(self._pending), [], 0
        self.due_at = math.inf
        self._show(self._text.decode(self._masker.feed(data, last), last))

    def _show(self, text: str) -> None:
        for begin in range(0, len(text), LINE_CHARACTERS):
            self._event(self._first_at, "o", text[begin : begin + LINE_CHARACTERS])

    def _event(self, at: float, kind: str, text: str) -> None:
        if self._unwritten:
            self._write(b"")
        if self._tail and not self._is_cut and not self._unwritten:
            self._write_tail()
        if self._is_cut or self._unwritten or self._fd < 0:
            self._keep(at, kind, text)
            return
        line = self._line(at, kind, text)
        if self._size + len(line) > self._limit:
            self._is_cut = True
            self._keep(at, kind, text)
        else:
            self._write(line)

    def _line(self, at: float, kind: str, text: str) -> bytes:
        event = [round(max(0.0, at - self._began), 6), kind, text]
        return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode("utf-8") + b"\n"

    def _keep(self, at: float, kind: str, text: str) -> None:
        """Keep an event in memory, the newest ones only. Nobody sees those of a file that could not be made."""
        if self._fd < 0:
            return
        self._tail.append((at, kind, text))
        self._tail_characters += len(text) + EVENT_CHARACTERS
        while self._tail_characters > TAIL_CHARACTERS:
            self._left_out += len(self._take_kept()[2])

    def _take_kept(self) -> Tuple[float, str, str]:
        event = self._tail.popleft()
        self._tail_characters -= len(event[2]) + EVENT_CHARACTERS
        return event

    def _write_tail(self) -> None:
        """Write what was kept. What fell out is said, where it is missing."""
        if self._left_out:
            words = "%d characters of output are left out here." % self._left_out
            self._write(self._line(self._tail[0][0], "m", words))
            self._left_out = 0
        while self._tail and not self._unwritten:
            self._write(self._line(*self._take_kept()))

    def _write(self, data: bytes) -> None:
        """Write whole lines: what a full disk did not take waits, and all later lines wait behind it."""
        if self._fd < 0:
            return
        data = self._unwritten + data
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            self.state = error.strerror or "%s" % error
            written = 0
        self._digest.update(data[:written])
        self._size += written
        self._unwritten = data[written:]
        if not self._unwritten:
            self.state = True

    # The end

    def end(self, status: int) -> None:
        """The note beside the file has its size and its digest; without it, the end is missing."""
        self._first_at = self._first_at if self._pending else time.monotonic()
        self.flush(last=True)
        if self._fd < 0:
            return
        self._is_cut, self._limit = False, HEAD_BYTES + 2 * TAIL_BYTES
        code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self._event(time.monotonic(), "x", "%d" % code)
        if not self._unwritten and not self._tail:
            note = {"size": self._size, "digest": self._digest.hexdigest()}
            with contextlib.suppress(OSError):
                write_file(self._path + ".end", json.dumps(note).encode())
        os.close(self._fd)
        self._fd = -1


def recorder_of(
    run_directory: str, request: Dict[str, Any], size: Tuple[int, int], values: List[str]
) -> Recorder:
    """The recorder of a new shell, as the console asks for it."""
    wanted = request["new"].get("record")
    if not isinstance(wanted, dict):
        return Recorder()
    at = wanted.get("at")
    header: Dict[str, Any] = {
        "version": 2,
        "width": size[0],
        "height": size[1],
        "env": {"TERM": "xterm-256color"},
    }
    if isinstance(at, (int, float)):
        header["timestamp"] = int(at)
    header["title"] = str(wanted.get("title") or "")[:200]
    return FileRecorder(path_of(run_directory, request["shell"]), header, values)
