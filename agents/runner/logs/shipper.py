"""Log shipping, serve's half: from the log file to frames.

Offsets on the wire are the file's, plus `shift` once the program has cut its own log.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from typing import List, Tuple

from agents.runner.files import make_spares, read_cut, read_json, read_plain, whole, write_with_spares
from agents.runner.linux import punch_hole
from agents.runner.logs.budget import MARK
from agents.runner.logs.digest import DIGEST_BLOCK, LogDigest
from agents.runner.logs.sent_tail import SentTail
from agents.runner.wire import Message, encode

FRAME_BYTES = 64 * 1024
BULK_BYTES = 256 * 1024
WINDOW_BYTES = 8 * 1024 * 1024
KEEP_BYTES = 64 * 1024
MAX_MARKS = 100_000
PUNCH_STEP = 1024 * 1024
CUT_PAUSE_S, MAX_CUT_PAUSE_S = 0.02, 5.0
# A program that writes over its log, unseen, has it sent again: while these were fewer bytes in the life of the run.
# What is as short as a line or two is always sent.
AGAIN_BYTES, SMALL_BYTES = 8 * 1024 * 1024, 4096
# A small frame goes at once, but not more often than this: the lines of a busy writer are gathered.
QUIET_S = 0.004


class LogShipper:
    """Sends one run's log to the console."""

    def __init__(self, run: str, directory: str, fresh: bool = False) -> None:
        self.run, self.directory = run, directory
        self.fd = -1
        self.pulled = self._raw = False
        self.closed = False
        self.final_size = 0
        self.end_sent = False
        self.sent = self.acked = 0
        # Gaps above what is acknowledged: they do not count for the window.
        self._skipped: List[Tuple[int, int]] = []
        self.not_before = 0.0
        self._seen = 0
        self._shift, self._generation, self._shipped = 0, 0, 0
        self._noted = 0  # how many blocks have their digest on disk
        self._can_punch = True
        self._cut_stamp: Tuple[int, int] | None = None
        self._cuts = 0
        # How many bytes were sent again, and up to where none are, on the wire.
        self._again = self._over = 0
        self._holes: List[List[int]] = []
        self._digest = LogDigest()
        self._tail = SentTail(directory)
        self._marks: List[Tuple[int, float]] = []
        if not fresh:  # an earlier serve may have sent some of it
            self._load()

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _load(self) -> None:
        found = read_json(self._path("log.sent")) or {}
        self._shift = whole(found.get("shift"))
        self._generation = whole(found.get("generation"))
        self._shipped = whole(found.get("shipped"))
        self._again, self._over = whole(found.get("again")), whole(found.get("over"))
        try:
            size = os.stat(self._path("log"), follow_symlinks=False).st_size
            if self._shipped > size:
                self._shipped = 0  # nonsense: nothing beyond the end was ever sent
            data = read_plain(self._path("log.blocks"), size // DIGEST_BLOCK * 32)
            self._digest = LogDigest([data[i : i + 32] for i in range(0, len(data) - 31, 32)])
            self._noted = len(self._digest.blocks)
        except OSError:
            pass
        self._tail.load(self._shift)
        self._seen = self._tail.end + self._shift

    def _save(self) -> bool:
        document = {
            "shift": self._shift,
            "generation": self._generation,
            "shipped": self._shipped,
            "again": self._again,
            "over": self._over,
        }
        try:
            write_with_spares(self.directory, "log.sent", json.dumps(document).encode(), False)
            return True
        except OSError:
            return False

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self._tail.close()

    def shift(self) -> int:
        """By how much offsets on the wire are higher than those of the file: the program may just have cut it."""
        was_open = self.fd >= 0
        # It may have been renewed meanwhile. A file that nobody can open is reported as vanished when it is pulled.
        with contextlib.suppress(ArithmeticError, LookupError, OSError, TypeError, ValueError):
            if self._tail.end and self._open():
                self._watch_cuts(os.fstat(self.fd).st_size)
        if not was_open:
            self.close()
        return self._shift

    def pull(self, start: int, raw: bool = False) -> None:
        """Send the log from this offset on. `raw`: the console packs by itself what comes unpacked."""
        self.pulled, self.end_sent, self._raw = True, False, raw
        self.sent = self.acked = start
        self._skipped = []
        self._read_marks()

    def ack(self, to: int) -> None:
        """The console has stored the bytes below `to`: the window moves on, and disk space may be freed."""
        self.acked = max(self.acked, min(to, self.sent))
        self._skipped = [gap for gap in self._skipped if gap[1] > self.acked]
        self._give_back()
        if self.end_sent and self.acked >= self.sent:
            self.close()  # complete; thousands of closed runs must not keep a descriptor each

    def _give_back(self) -> None:
        # Only whole blocks whose digest is on disk: a later process must be able to compute the digest too.
        safe = min(self.acked - self._shift, self._noted * DIGEST_BLOCK) - KEEP_BYTES
        end = safe // 65536 * 65536
        if end - self._shipped < PUNCH_STEP or self.fd < 0 or not self._can_punch:
            return
        start, self._shipped = self._shipped, end
        if self._save() and punch_hole(self.fd, start, end - start):
            with contextlib.suppress(OSError):
                if not self.closed:
                    make_spares(self.directory)  # on a full disk the note may have used one
            return
        self._shipped = start  # not on this file system, or not even a note fits: all bytes are still there
        self._can_punch = False
        self._save()

    def frame(self, now: float, alone: bool = False, link_idle: bool = False) -> bytes | None:
        """The next frame of this run; b"" for "ask again soon", None for "nothing until something happens".

        One call reads, hashes and packs at most FRAME_BYTES, so that nobody else waits long. If this log is the only
        one and far behind, one call takes more, since each frame costs both ends something whatever its size. If
        moreover the link is idle (`link_idle`), packing is what the log waits for, and these bytes go unpacked.
        """
        if not self.pulled or self.end_sent:
            return None
        room = WINDOW_BYTES - (self.sent - self.acked) + sum(to - start for start, to in self._skipped)
        if room <= 0:
            return None
        if not self._open():
            if self.closed and self.sent < self.final_size + self._shift:
                return self._gap(self.final_size + self._shift, "vanished")
            return self._end()
        size = os.fstat(self.fd).st_size
        self._watch_cuts(size)
        lost = self._lost_at(self.sent, size)
        if lost is not None:
            # A program that cuts its log again and again is reported ever less often: each cut is a row at the console.
            self.not_before = now + min(CUT_PAUSE_S * self._cuts, MAX_CUT_PAUSE_S)
            return self._gap(*lost)
        start = self.sent - self._shift
        self._seen = max(self._seen, size + self._shift)
        if size <= start:
            return self._end()
        far_behind = alone and size - start >= 4 * BULK_BYTES
        length = min(BULK_BYTES if far_behind else FRAME_BYTES, size - start, room)
        data = os.pread(self.fd, self._up_to_hole(start, length), start)
        before = self._cut_stamp, self._shift
        self._watch_cuts(os.fstat(self.fd).st_size)
        if before != (self._cut_stamp, self._shift) or not data:
            return b""  # cut while we read: the data may be zeros. Look again.
        self.not_before = now + (QUIET_S if len(data) < FRAME_BYTES else 0)
        return self._data_frame(start, data, now, packs=not (self._raw and far_behind and link_idle))

    def _gap(self, to: int, reason: str) -> bytes:
        start, self.sent = self.sent, to
        self._skipped.append((start, to))
        self._tail.skipped(to - self._shift, self._shift)
        return encode({"t": "gap", "run": self.run, "from": start, "to": to, "reason": reason})

    def _data_frame(self, start: int, data: bytes, now: float, packs: bool) -> bytes:
        self._tail.moved(start, data, self._shift)
        if self._digest.size == start:
            self._hash(data)
        else:
            self._catch_up()
        head: Message = {"t": "log", "run": self.run, "from": self.sent, "to": self.sent + len(data), "z": 0}
        head["at"] = self._times(start, len(data))
        packed = zlib.compress(data, 1) if packs and len(data) > 100 else data
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
        self.end_sent = True
        whole = not (self._holes or self._shift) and self._digest.size >= self.sent
        digest = self._digest.value() if whole else ""
        return encode({"t": "log_end", "run": self.run, "size": self.sent, "digest": digest})

    # -- what the host no longer has --

    def _watch_cuts(self, size: int) -> None:
        """Read what the keeper punched out, and notice that the program cut its own log."""
        differs = self._tail.differs(self.fd)  # first: what is punched out is written down before
        try:
            found = os.stat(self._path("log.cut"))
            stamp = (found.st_mtime_ns, found.st_ino)
        except OSError:
            stamp = None
        generation = self._generation
        if stamp != self._cut_stamp:
            generation, self._holes = read_cut(self.directory)
            self._cut_stamp = stamp
        is_cut = size + self._shift < max(self._seen, 0 if self.closed else self.sent)
        is_cut = is_cut or generation > self._generation
        # What serve itself freed reads as zeros, like what the keeper punched out.
        holes = [*self._holes, [0, self._shipped]]
        if is_cut or (differs and not self._tail.in_holes(holes) and self._sends_again(size)):
            # One byte more than is known: nobody can tell how much was written and cut unseen.
            self._shift = max(self._seen, self.sent) + 1
            self._seen, self._shipped = self._shift, 0
            self._generation = max(generation, self._generation + 1)
            self._cuts += 1
            self._cut_stamp = (0, 0)
            self._save()
            self._tail.skipped(0, self._shift)

    def _sends_again(self, size: int) -> bool:
        """Whether a log is sent again over which its program has written, unseen. If it was sent too often, a gap says
        so once, and what the program adds goes on behind it."""
        if size <= SMALL_BYTES:
            return True
        if self._again < AGAIN_BYTES:
            self._again += size
            return True
        # After a cut that was seen it is said again.
        if self.pulled and self._over <= self._shift:
            # The gap is a byte that never was: it takes the place of what is not sent.
            self._over = self.sent + 1
            self._seen = max(self._seen, self.sent) + 1
            self._shift += 1
            self._save()
        return False

    def _lost_at(self, offset: int, size: int) -> Tuple[int, str] | None:
        """(to, reason) when the byte at this wire offset is gone.

        The keeper never punches a hole up to the end of the file. A hole that reaches beyond it belongs to a log that
        the program has cut since, or is nonsense.
        """
        if offset < self._shift:
            return self._shift, "truncated"
        if offset < self._over:
            return self._over, "rewritten"
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
        """Read the times of what was written while no serve was there: the keeper noted (size, time) now and then."""
        try:
            data = read_plain(self._path("log.marks"), MAX_MARKS * MARK.size)
        except OSError:
            data = b""
        marks = MARK.iter_unpack(data[: len(data) // MARK.size * MARK.size])
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
