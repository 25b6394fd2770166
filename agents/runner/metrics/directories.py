"""Where TensorBoard, MLflow and W&B have put files of a run: walks over directories that the program made. Bounded."""

from __future__ import annotations

import contextlib
import os
import stat
from itertools import islice
from typing import Any, Iterator, List, NamedTuple, Tuple

from agents.runner.metrics.places import Place
from agents.runner.metrics.reports import MLFLOW, Report, name_of, step_of, time_of, value_of

MAX_FILES, MAX_ENTRIES, MAX_DEPTH = 300, 5000, 5
# A server of files dates them by its own clock.
CLOCKS_APART_S = 3600.0


class Found(NamedTuple):
    """A file, by its path below the place."""

    path: str
    written: float


def event_files(place: Place, since: float) -> List[Tuple[Found, str]]:
    """(file, what stands before its tags) of TensorBoard's files. A writer in a subdirectory is a run of its own."""
    found = []
    for file in files_below(place):
        above, name = os.path.split(file.path)
        if "tfevents" in name and not name.endswith(".profile-empty"):
            found.append((file, above + "/" if above else ""))
    return _newest(found, since)


def metric_files(place: Place, since: float) -> List[Tuple[Found, str, str]]:
    """(file, MLflow's run, metric) of the files in MLflow's file store: EXPERIMENT/RUN/metrics/NAME."""
    found = []
    for file in files_below(place):
        parts = file.path.split("/")
        if len(parts) >= 4 and parts[2] == "metrics":
            found.append((file, parts[1], "/".join(parts[3:])))
    return _newest(found, since)


def summary_files(place: Place, since: float) -> List[Tuple[Found, str]]:
    """(file, W&B's run) of the final values of its runs: the newest first. The run itself is a database, and is not
    read."""
    found = []
    for file in files_below(place):
        parts = file.path.split("/")
        if parts[-2:] == ["files", "wandb-summary.json"] and len(parts) >= 3:
            found.append((file, parts[-3].rpartition("-")[2]))
    return sorted(_newest(found, since), key=lambda each: -each[0].written)


def _newest(found: List[Any], since: float) -> List[Any]:
    """The newest MAX_FILES of those that this run may have written, by name. Others use such directories too."""
    since -= CLOCKS_APART_S
    written = sorted((each for each in found if each[0].written >= since), key=lambda each: -each[0].written)
    return sorted(written[:MAX_FILES], key=lambda each: each[0].path)


def of_mlflow(line: bytes, name: str) -> List[Report]:
    """The report in a line of such a file: milliseconds, value, step."""
    parts = line.decode("utf-8", "replace").split()
    name = name_of(name)
    value = value_of(parts[1]) if len(parts) > 1 else None
    if not name or value is None:
        return []
    at, step = time_of(parts[0]), step_of(parts[2]) if len(parts) > 2 else None
    return [Report(MLFLOW, name, step, value, at)]


def open_below(place: Place, flags: int) -> int:
    """A descriptor of what is there. Between its root and its end no link is followed. Raises OSError."""
    fd = os.open(place.root, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_DIRECTORY)
    parts = [part for part in place.below.split("/") if part]
    for number, part in enumerate(parts, 1):
        kind = flags if number == len(parts) else os.O_DIRECTORY
        try:
            found = os.open(
                part, os.O_RDONLY | kind | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd
            )
        finally:
            os.close(fd)
        fd = found
    return fd


def files_below(place: Place) -> Iterator[Found]:
    """Plain files, those of the newest directories first. Bounded."""
    left = MAX_ENTRIES
    waiting = [("", 0)]
    while waiting and left > 0:
        below, depth = waiting.pop(0)
        entries = _entries(Place(place.root, os.path.join(place.below, below)), left)
        left -= len(entries)
        for name, found in sorted(entries, key=lambda entry: -entry[1].st_mtime):
            if stat.S_ISDIR(found.st_mode) and depth < MAX_DEPTH:
                waiting.append((os.path.join(below, name), depth + 1))
            elif stat.S_ISREG(found.st_mode):
                yield Found(os.path.join(below, name), found.st_mtime)


def _entries(place: Place, most: int) -> List[Tuple[str, os.stat_result]]:
    found = []
    with contextlib.suppress(OSError):
        fd = open_below(place, os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                for entry in islice(entries, most):
                    with contextlib.suppress(OSError):  # it is gone by now
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
        finally:
            os.close(fd)
    return found
