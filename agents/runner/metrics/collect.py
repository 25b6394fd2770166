"""One pass over the sources of a run's metrics: what is new in them goes into its journal.

It runs in a process of its own with a deadline, for a program may write on a disk that does not answer.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

from agents.runner.forks import run_with_timeout
from agents.runner.metrics.directories import (
    Found,
    event_files,
    metric_files,
    of_mlflow,
    open_below,
    summary_files,
)
from agents.runner.metrics.hypertune_file import HypertuneFile
from agents.runner.metrics.journal import Journal
from agents.runner.metrics.places import (
    HELD,
    MLFLOW_DIRECTORY,
    SPOOL,
    TENSORBOARD_DIRECTORY,
    WANDB_DIRECTORY,
    Place,
    has_own_reports,
    hypertune_path,
    may_use_directories,
    own_path,
    sources_of,
)
from agents.runner.metrics.reports import (
    Report,
    name_of,
    of_hypertune,
    of_json,
    of_summary,
    whole_lines,
)
from agents.runner.metrics.tensorboard import next_record, scalars

# What one pass reads of one file; the next one goes on there.
SLICE_BYTES = 2 << 20
PASS_BYTES = 16 << 20
# Of so little, the keeper has the last pass made at once: it takes a few milliseconds. It waits so long for it.
LITTLE_BYTES = 64 << 10
LAST_PASS_S = 2.0
SLACK_S = 5.0
Read = Callable[[bytes, bool], Tuple[List[Report], int]]


def since_of(facts: Mapping[str, Any]) -> float:
    """What was written before this is of an earlier run."""
    return (facts["claimed_at"] or 0.0) - SLACK_S


def read_last(base: str, directory: str, facts: Mapping[str, Any]) -> bool:
    """The end of a run, by its keeper, when no process of it is left. Returns whether its program may have reported.

    What little there is in the run's own directory is read here and now, so that nobody waits for a pass. Directories
    of the program may not answer, and the end of the run must not wait for them: they are left to a pass. The program
    may also have written into the run's own directory what it liked. So a child reads it, with a deadline: it may hang
    or raise, and the run closes all the same.
    """
    if may_use_directories(base, directory, facts):
        return True
    if not has_own_reports(directory):
        return False
    # A host without another process or memory to spare costs the metrics, not the end of the run.
    with contextlib.suppress(OSError):
        run_with_timeout(lambda: _read_little(directory, since_of(facts)), LAST_PASS_S)
    return True


def _read_little(directory: str, since: float) -> None:
    if _own_bytes(directory) <= LITTLE_BYTES:
        Pass(directory, "", since).collect(is_over=True, with_directories=False)


def _own_bytes(directory: str) -> int:
    paths = [os.path.join(directory, SPOOL), own_path(directory), hypertune_path(directory)]
    held = os.path.join(directory, HELD)
    with contextlib.suppress(OSError):
        paths += [os.path.join(held, name) for name in os.listdir(held)]
    found = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found += os.lstat(path).st_size
    return found


class Pass:
    """`since`: what was written before the run began belongs to an earlier run of the same directories."""

    def __init__(self, directory: str, work: str, since: float) -> None:
        self.directory, self.work, self.since = directory, work, since
        self.journal = Journal(directory, time.time())
        self.left_bytes = PASS_BYTES
        self.has_more = False
        self.found = 0

    def collect(self, is_over: bool, with_directories: bool = True) -> Dict[str, Any]:
        """`is_over`: the run is closed. `with_directories`: look into those of the program too, for TensorBoard's files
        and MLflow's."""
        if not self.journal.lock():
            return {"size": self.journal.size, "more": True, "locked": True, "found": 0, "final": False}
        try:
            return self._collect(is_over, with_directories)
        finally:
            self.journal.unlock()

    def _collect(self, is_over: bool, with_directories: bool) -> Dict[str, Any]:
        if is_over:
            HypertuneFile(self.directory).recover()
        for place, read in self._files(with_directories, is_over):
            self._read(place, read, is_over)
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

    def _files(self, with_directories: bool, is_over: bool) -> Iterator[Tuple[Place, Read]]:
        yield Place(self.directory, SPOOL), by_line(of_hypertune)
        yield Place(*os.path.split(own_path(self.directory))), by_line(of_json)
        if not with_directories:
            return
        sources = sources_of(self.directory, self.work)
        # Of the job's own directories only one has TensorBoard's files: that which its program was told.
        logs = sources.get("tensorboard") or self._in_work(TENSORBOARD_DIRECTORY)
        if logs:
            for file, prefix in event_files(logs, self.since):
                yield _below(logs, file), by_record(prefix, self.since)
        for store in (sources.get("mlflow"), self._in_work(MLFLOW_DIRECTORY)):
            if store:
                yield from self._of_store(store)
        summaries = sources.get("wandb") or self._in_work(WANDB_DIRECTORY)
        if is_over and summaries:  # until then its file is written anew again and again
            for number, (file, run) in enumerate(summary_files(summaries, self.since)):
                yield _below(summaries, file), by_summary("%s/" % run[:8] if number else "")

    def _in_work(self, name: str) -> Place | None:
        return Place(self.work, name) if self.work else None

    def _of_store(self, store: Place) -> Iterator[Tuple[Place, Read]]:
        """A program may have several runs of MLflow: the metrics of all but one get the name of theirs."""
        for file, run, name in metric_files(store, self.since):
            if not self.journal.files.get("mlflow") and file.written >= self.since:
                self.journal.files["mlflow"] = run
            shown = name if run == self.journal.files.get("mlflow") else "%s/%s" % (run[:8], name)
            yield _below(store, file), by_line(_mlflow_reader(shown, self.since))

    def _read(self, place: Place, read: Read, is_over: bool) -> None:
        """Read what is new in a file, up to a slice."""
        if self.left_bytes <= 0:
            self.has_more = True
            return
        path = os.path.join(*place)
        try:
            fd = open_below(place, os.O_RDONLY)
        except OSError:
            return
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return
            start = self._start(path, found)
            if start >= found.st_size:
                return
            data = os.pread(fd, min(SLICE_BYTES, self.left_bytes), start)
            is_end = start + len(data) >= found.st_size
            reports, used = read(data, is_end)
            if is_over and is_end and used < len(data):
                reports, used = reports + read(data[used:] + b"\n", True)[0], len(data)
            if not used and not is_end:
                used = len(data)  # nothing in a whole slice: no line of a report is so long
            self.journal.files[path] = [found.st_ino, start + used]
            self.left_bytes -= len(data)
            self.found += len(reports)
            self.has_more = self.has_more or (used > 0 and start + used < found.st_size and not is_end)
            for report in reports:
                self.journal.add(report)
        finally:
            os.close(fd)

    def _start(self, path: str, found: os.stat_result) -> int:
        """Up to where this file was read. One that was made anew, or cut, begins anew."""
        known = self.journal.files.get(path)
        if not isinstance(known, list) or [type(each) for each in known] != [int, int]:
            return 0
        inode, start = known
        # A record of TensorBoard that is skipped may not be whole yet.
        fits = 0 <= start <= found.st_size or (start > 0 and "tfevents" in path)
        return start if inode == found.st_ino and fits else 0


def _below(place: Place, file: Found) -> Place:
    return Place(place.root, os.path.join(place.below, file.path))


def by_line(parse: Callable[[bytes], List[Report]]) -> Read:
    def read(data: bytes, is_end: bool) -> Tuple[List[Report], int]:
        lines, used = whole_lines(data)
        return [report for line in lines for report in parse(line)], used

    return read


def by_summary(prefix: str) -> Read:
    """The file of the newest run as it is; the metrics of others have the name of theirs, as MLflow's."""

    def read(data: bytes, is_end: bool) -> Tuple[List[Report], int]:
        found = of_summary(data) if is_end else []
        return [each._replace(name=name_of(prefix + each.name)) for each in found], len(data)

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
