"""The journal of a run's metrics: what was read of all sources, in a file that only grows.

Each line is [source, name, step, value, at]. The state beside it says how much of the journal counts, and up to where
each source was read, in one document that is replaced whole. So a pass that was killed is done again from the state
before it: what it had appended does not count, and nothing is in the journal twice or is missing.

The proof: each line is hashed with the hash of the lines before it. The console does the same as it stores them.

A program may report without end. The first reports are all kept. From then on a series gets the fewer new lines, the
longer it lasts, so that its curve is as fine at its end as at its beginning; and of what is left out, the newest, the
lowest and the highest are written at the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
from typing import Any, Dict, List, Tuple

from agents.runner.failpoints import failpoint
from agents.runner.files import read_json, whole, write_file
from agents.runner.metrics.places import JOURNAL, LOCK, STATE
from agents.runner.metrics.reports import Report, to_line

FREE_BYTES, MAX_BYTES = 4 << 20, 24 << 20
# Beyond FREE_BYTES, all series together get so many lines while the run's age doubles, roughly.
LINES_A_DOUBLING = 10_000
MAX_SERIES = 500


def chained(before: str, line: bytes) -> str:
    """The hash of a line and of all before it."""
    return hashlib.sha256(before.encode("ascii") + line).hexdigest()


class Series:
    """What is known of one metric: how many reports there were, and those that wait to be written, if at all."""

    def __init__(self, found: Any = None) -> None:
        found = found if isinstance(found, dict) else {}
        self.count, self.counts_steps = whole(found.get("count")), found.get("counts") is True
        self.written_at = _number(found.get("at"))
        left = found.get("left")
        self.left: List[Report] = [
            Report(*each) for each in (left if isinstance(left, list) else []) if _is_report(each)
        ]

    def document(self) -> Dict[str, Any]:
        left = [[*each[:3], repr(each.value), each.at] for each in self.left]
        return {"count": self.count, "counts": self.counts_steps, "at": self.written_at, "left": left}

    def step_for(self, report: Report) -> int:
        """Its step. Without one, or where all are 0 (cloudml-hypertune without `global_step`), reports are counted."""
        if report.step is None or (
            report.step == 0 and self.count and (self.counts_steps or self.count == 1)
        ):
            self.counts_steps = True
            return self.count
        return report.step

    def leave(self, report: Report) -> None:
        """Keep it aside: the newest, the lowest, the highest of what is left out."""
        each = [*self.left, report]
        numbers = [one for one in each if not math.isnan(one.value)] or each
        kept = [each[-1], min(numbers, key=lambda one: one.value), max(numbers, key=lambda one: one.value)]
        self.left = sorted(set(kept), key=lambda one: (one.at or 0.0, one.step or 0))


def _number(found: Any) -> float:
    return float(found) if isinstance(found, (int, float)) and 0 <= found < 1e12 else 0.0


def _is_report(found: Any) -> bool:
    if not isinstance(found, list) or len(found) != 5:
        return False
    source, name, step, value, at = found
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        found[3] = float(value)
        return isinstance(source, str) and isinstance(name, str) and type(step) is int and _number(at) > 0
    return False


class Journal:
    """The journal and its state, for one pass. `lock` is held by one pass at a time."""

    def __init__(self, directory: str, now: float) -> None:
        self.directory, self.now = directory, now
        self._lines: List[bytes] = []
        self._added = 0
        self._lock = -1
        self._read_state()

    def _read_state(self) -> None:
        found = read_state(self.directory)
        self.size, self.chain = whole(found.get("size")), str(found.get("chain") or "")[:64]
        self.began = _number(found.get("began")) or self.now
        files = found.get("files")
        self.files: Dict[str, Any] = files if isinstance(files, dict) else {}
        series = found.get("series")
        known = series.items() if isinstance(series, dict) else ()
        self.series = {str(key): Series(value) for key, value in known}
        self.is_final = found.get("final") is True

    def lock(self) -> bool:
        """False while another pass is at it."""
        fd = os.open(
            os.path.join(self.directory, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._lock = fd
        self._read_state()  # another pass may have written it since
        return True

    def unlock(self) -> None:
        os.close(self._lock)

    def add(self, report: Report) -> None:
        key = "%s\t%s" % report[:2]
        if key not in self.series and len(self.series) >= MAX_SERIES:
            return
        series = self.series.setdefault(key, Series())
        at = report.at or self.now
        report = report._replace(step=series.step_for(report), at=at)
        series.count += 1
        if self.size + self._added < FREE_BYTES or self._is_due(series, at):
            self._write(report, series)
        else:
            series.leave(report)

    def _is_due(self, series: Series, at: float) -> bool:
        if self.size + self._added >= MAX_BYTES:
            return False
        pause = max(at - self.began, 1.0) * len(self.series) / LINES_A_DOUBLING
        return not series.written_at or at - series.written_at >= pause

    def _write(self, report: Report, series: Series) -> None:
        at = report.at or self.now
        line = to_line(report, report.step or 0, at)
        series.written_at = at
        self._lines.append(line)
        self._added += len(line)

    def end(self) -> None:
        """No more will come: write what waits."""
        for series in self.series.values():
            for report in series.left:
                self._write(report, series)
            series.left = []
        self.is_final = True

    def commit(self) -> None:
        """Append what was added, then say that it counts. Raises OSError: then nothing has changed."""
        path = os.path.join(self.directory, JOURNAL)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        try:
            os.ftruncate(fd, self.size)  # what a pass wrote that was killed before it said so
            data = memoryview(b"".join(self._lines))
            at = self.size
            while data:
                written = os.pwrite(fd, data, at)
                data, at = data[written:], at + written
        finally:
            os.close(fd)
        failpoint("before_commit")
        for line in self._lines:
            self.chain = chained(self.chain, line)
        self.size, self._lines, self._added = at, [], 0
        write_file(os.path.join(self.directory, STATE), json.dumps(self.document()).encode("ascii"))

    def document(self) -> Dict[str, Any]:
        return {
            "size": self.size,
            "chain": self.chain,
            "began": self.began,
            "final": self.is_final,
            "files": self.files,
            "series": {key: series.document() for key, series in self.series.items()},
        }


def read_state(directory: str) -> Dict[str, Any]:
    return read_json(os.path.join(directory, STATE)) or {}


def committed(directory: str) -> Tuple[int, bool, str]:
    """(how many bytes of the journal count, whether no more will come, the hash of its lines)."""
    found = read_state(directory)
    return whole(found.get("size")), found.get("final") is True, str(found.get("chain") or "")[:64]


def read_piece(directory: str, start: int, end: int, most: int) -> bytes:
    """Whole lines of the journal from this offset on; b"" if they are not there."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(os.path.join(directory, JOURNAL), flags)
    except OSError:
        return b""
    try:
        data = os.pread(fd, min(most, end - start), start)
        return data[: data.rfind(b"\n") + 1]
    finally:
        os.close(fd)
