"""Where TensorBoard and MLflow have put files of a run: walks over directories that the program made. Bounded."""

from __future__ import annotations

import os
import stat
from itertools import islice
from typing import Iterator, List, Tuple

from agents.runner.metrics.reports import MLFLOW, Report, name_of, step_of, time_of, value_of

MAX_FILES, MAX_ENTRIES, MAX_DEPTH = 300, 5000, 5


def event_files(top: str) -> List[Tuple[str, str]]:
    """(path, what stands before its tags) of TensorBoard's files. A writer in a subdirectory is a run of its own."""
    found = []
    for path, relative in files_below(top):
        name = os.path.basename(path)
        if "tfevents" in name and not name.endswith(".profile-empty"):
            above = os.path.dirname(relative)
            found.append((path, above + "/" if above else ""))
    return found[:MAX_FILES]


def metric_files(store: str) -> List[Tuple[str, str, str]]:
    """(path, MLflow's run, metric) of the files in MLflow's file store: EXPERIMENT/RUN/metrics/NAME."""
    found = []
    for path, relative in files_below(store):
        parts = relative.split("/")
        if len(parts) >= 4 and parts[2] == "metrics":
            found.append((path, parts[1], "/".join(parts[3:])))
    return found[:MAX_FILES]


def of_mlflow(line: bytes, name: str) -> List[Report]:
    """The report in a line of such a file: milliseconds, value, step."""
    parts = line.decode("utf-8", "replace").split()
    name = name_of(name)
    value = value_of(parts[1]) if len(parts) > 1 else None
    if not name or value is None:
        return []
    at, step = time_of(parts[0]), step_of(parts[2]) if len(parts) > 2 else None
    return [Report(MLFLOW, name, step, value, at)]


def files_below(top: str) -> Iterator[Tuple[str, str]]:
    """(path, path below `top`) of plain files, in order. No link is followed."""
    seen = 0
    waiting = [("", 0)]
    while waiting:
        below, depth = waiting.pop(0)
        try:
            with os.scandir(os.path.join(top, below)) as entries:
                names = sorted(entry.name for entry in islice(entries, MAX_ENTRIES))
        except OSError:
            continue
        for name in names:
            seen += 1
            if seen > MAX_ENTRIES:
                return
            relative = os.path.join(below, name)
            try:
                found = os.lstat(os.path.join(top, relative))
            except OSError:
                continue
            if stat.S_ISDIR(found.st_mode) and depth < MAX_DEPTH:
                waiting.append((relative, depth + 1))
            elif stat.S_ISREG(found.st_mode):
                yield os.path.join(top, relative), relative
