"""The processor time of each test (`tools/run-tests --cpu`): of its process, and of all that this process has started.

The kernel counts it for a control group that each process of pytest makes for itself. What is started is in the same
group, for as long as it runs: a product that several tests share counts for the test that runs meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import defaultdict
from pathlib import Path

import pytest

FILE = "TRAINYARD_TEST_CPU"
MOST = 30
ROOT = Path("/sys/fs/cgroup")


class Group:
    """A control group of this process's own, below the one that it is in: of version 1 if the machine has it, or 2."""

    def __init__(self, root=ROOT):
        self.old = (root / "cpuacct").is_dir()
        controller = "cpuacct" if self.old else ""
        self.parent = root / controller / own_path(controller).lstrip("/")
        self.path = self.parent / f"trainyard-tests-{os.getpid()}"

    def enter(self):
        self.path.mkdir()
        (self.path / "cgroup.procs").write_text(str(os.getpid()))
        return self

    def leave(self):
        """The group stays where something of it still runs."""
        (self.parent / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def seconds(self):
        if self.old:
            return int((self.path / "cpuacct.usage").read_text()) / 1e9
        lines = dict(line.split() for line in (self.path / "cpu.stat").read_text().splitlines())
        return int(lines["usage_usec"]) / 1e6


def own_path(controller):
    """Below which path of this controller the process is; that of version 2 has no name."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    raise pytest.UsageError(
        f"no control group {controller!r}: the processor time of tests cannot be measured"
    )


group = None


def pytest_configure():
    global group
    try:
        group = Group().enter()
    except OSError as problem:
        raise pytest.UsageError(f"the processor time of tests needs a control group: {problem}") from None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    before = (group.seconds(), time.monotonic())
    try:
        return (yield)
    finally:
        spent = [group.seconds() - before[0], time.monotonic() - before[1]]
        with open(os.environ[FILE], "a") as file:
            file.write(json.dumps([item.nodeid, *spent]) + "\n")


def pytest_unconfigure():
    if group:
        group.leave()


def table(lines):
    """What the tests of each file used, and the tests that used most, from the lines of all processes."""
    files, tests = defaultdict(lambda: [0.0, 0.0]), []
    for name, cpu, wall in map(json.loads, lines):
        tests.append((cpu, wall, name))
        for at, seconds in enumerate((cpu, wall)):
            files[name.split("::")[0]][at] += seconds
    yield f"processor time of {len(tests)} tests: {sum(cpu for cpu, _, _ in tests):.0f} s"
    for what, rows in (("files", [(*spent, name) for name, spent in files.items()]), ("tests", tests)):
        yield f"the {what} that used most: seconds of processor time, seconds"
        yield from (
            f"{cpu:8.1f} {wall:8.1f}  {name}" for cpu, wall, name in sorted(rows, reverse=True)[:MOST]
        )
