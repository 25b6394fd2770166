"""One pass over the sources of a run's metrics: what is new in them goes into its journal.

It runs in a process of its own with a deadline, for a program may write on a disk that does not answer.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

from agents.runner.metrics.directories import event_files, metric_files, of_mlflow
from agents.runner.metrics.hypertune_file import HypertuneFile
from agents.runner.metrics.journal import Journal
from agents.runner.metrics.places import MLFLOW_DIRECTORY, SPOOL, own_path, sources_of
from agents.runner.metrics.reports import Report, of_hypertune, of_json, whole_lines
from agents.runner.metrics.tensorboard import next_record, scalars

# What one pass reads of one file; the next one goes on there.
SLICE_BYTES = 2 << 20
PASS_BYTES = 16 << 20
Read = Callable[[bytes, bool], Tuple[List[Report], int]]


class Pass:
    """`since`: what was written before the run began belongs to an earlier run of the same directories."""

    def __init__(self, directory: str, work: str, since: float) -> None:
        self.directory, self.work, self.since = directory, work, since
        self.journal = Journal(directory, time.time())
        self.left_bytes = PASS_BYTES
        self.has_more = False
        self.found = 0

    def collect(self, is_over: bool, also_far: bool = True) -> Dict[str, Any]:
        """`is_over`: the run is closed. `also_far`: look into the directories of the program too."""
        if not self.journal.lock():
            return {"size": self.journal.size, "more": True, "found": 0, "final": False}
        try:
            return self._collect(is_over, also_far)
        finally:
            self.journal.unlock()

    def _collect(self, is_over: bool, also_far: bool) -> Dict[str, Any]:
        if is_over:
            HypertuneFile(self.directory).recover()
        for path, read in self._files(also_far):
            self._read(path, read, is_over)
        if is_over and not self.has_more:
            self.journal.end()
        self.journal.commit()
        return {
            "size": self.journal.size,
            "more": self.has_more,
            "found": self.found,
            "final": self.journal.is_final,
            "chain": self.journal.chain,
        }

    def _files(self, also_far: bool) -> Iterator[Tuple[str, Read]]:
        yield os.path.join(self.directory, SPOOL), by_line(of_hypertune)
        yield own_path(self.directory), by_line(of_json)
        if not also_far:
            return
        sources = sources_of(self.directory)
        if "tensorboard" in sources:
            for path, prefix in event_files(sources["tensorboard"]):
                yield path, by_record(prefix, self.since)
        for store in (sources.get("mlflow", ""), os.path.join(self.work, MLFLOW_DIRECTORY)):
            if store and not os.path.islink(store):
                yield from self._of_store(store)

    def _of_store(self, store: str) -> Iterator[Tuple[str, Read]]:
        """A program may have several runs of MLflow: the metrics of all but one get the name of theirs."""
        for path, run, name in metric_files(store):
            if not self.journal.files.get("mlflow") and os.stat(path).st_mtime >= self.since:
                self.journal.files["mlflow"] = run
            shown = name if run == self.journal.files.get("mlflow") else "%s/%s" % (run[:8], name)
            yield path, by_line(_mlflow_reader(shown, self.since))

    def _read(self, path: str, read: Read, is_over: bool) -> None:
        """Read what is new in a file, up to a slice."""
        if self.left_bytes <= 0:
            self.has_more = True
            return
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(path, flags)
        except OSError:
            return
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return
            place = self._place(path, found)
            if place >= found.st_size:
                return
            data = os.pread(fd, min(SLICE_BYTES, self.left_bytes), place)
            is_end = place + len(data) >= found.st_size
            reports, used = read(data, is_end)
            if is_over and is_end and used < len(data):
                reports, used = reports + read(data[used:] + b"\n", True)[0], len(data)
            if not used and not is_end:
                used = len(data)  # nothing in a whole slice: no line of a report is so long
            self.journal.files[path] = [found.st_ino, place + used]
            self.left_bytes -= len(data)
            self.found += len(reports)
            self.has_more = self.has_more or (used > 0 and place + used < found.st_size and not is_end)
            for report in reports:
                self.journal.add(report)
        finally:
            os.close(fd)

    def _place(self, path: str, found: os.stat_result) -> int:
        """Up to where this file was read. One that was made anew, or cut, begins anew."""
        known = self.journal.files.get(path)
        if not isinstance(known, list) or [type(each) for each in known] != [int, int]:
            return 0
        inode, place = known
        # A record of TensorBoard that is skipped may not be whole yet.
        fits = 0 <= place <= found.st_size or (place > 0 and "tfevents" in path)
        return place if inode == found.st_ino and fits else 0


def by_line(parse: Callable[[bytes], List[Report]]) -> Read:
    def read(data: bytes, is_end: bool) -> Tuple[List[Report], int]:
        lines, used = whole_lines(data)
        return [report for line in lines for report in parse(line)], used

    return read


def by_record(prefix: str, since: float) -> Read:
    def read(data: bytes, is_end: bool) -> Tuple[List[Report], int]:
        found: List[Report] = []
        at = 0
        while at < len(data):
            size, record = next_record(data, at, is_end)
            if size <= 0:
                break  # not whole yet; or no record, and nobody can tell where the next one begins
            at += size
            found += [each for each in scalars(record, prefix) if each.at is None or each.at >= since]
        return found, at

    return read


def _mlflow_reader(name: str, since: float) -> Callable[[bytes], List[Report]]:
    return lambda line: [each for each in of_mlflow(line, name) if each.at is None or each.at >= since]
