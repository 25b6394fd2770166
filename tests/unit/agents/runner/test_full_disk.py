"""A host whose disk is small, or full: a run that began is reported to its end, and a start is refused with the
reason."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agents.runner.files import HOST_SPARES
from agents.runner.logs.digest import log_digest
from tests.unit.agents.runner.protocol_client import PYTHON, Host, command, wait_for

# Mounts a small disk over the home in a mount namespace of its own; root needs no user namespace for that.
SMALL_DISK = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-Urm"]


class SmallHost(Host):
    """A host whose home is a disk of its own, of `size_mb`."""

    def __init__(self, home, size_mb):
        super().__init__(home)
        self.env["TRAINYARD_FLOOR_MB"] = "1"
        disk = home / "disk"
        disk.mkdir()
        self.env["HOME"] = str(disk)
        self.keeper = subprocess.Popen(
            [*SMALL_DISK, "sh", "-c", 'mount -t tmpfs -o size="$1"m tmpfs "$2" && echo ready && exec sleep 600',
             "sh", str(size_mb), str(disk)],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.keeper.stdout.readline() == b"ready\n"
        # Its files are readable through the namespace's root, and serve starts inside.
        self.inside = Path(f"/proc/{self.keeper.pid}/root")
        enter = home / "python-inside"
        user = "" if os.getuid() == 0 else "-U --preserve-credentials"
        enter.write_text(f'#!/bin/sh\nexec nsenter -t {self.keeper.pid} -m {user} {PYTHON} "$@"\n')
        enter.chmod(0o755)
        self.python = str(enter)

    def run_dir(self, run, deployment="dep"):
        return self.inside / str(self.home / "disk")[1:] / ".trainyard" / deployment / "runs" / run

    def clean(self):
        self.home, home = self.home / "disk", self.home
        super().clean()
        self.home = home
        self.keeper.kill()
        self.keeper.wait()
        self.keeper.stdout.close()


@pytest.fixture
def small(tmp_path):
    hosts = []

    def make(size_mb):
        home = tmp_path / "small"
        home.mkdir()
        hosts.append(SmallHost(home, size_mb))
        return hosts[-1]

    yield make
    for host in hosts:
        host.clean()


def test_on_a_full_disk_the_end_of_a_run_is_still_recorded(small):
    host = small(4)
    console = host.connect()
    console.hello()
    console.start("r1", command(
        "import os, sys", "print('up')", "f = open('fill', 'wb', buffering=0)",
        "try:", " while True: f.write(bytes(4096))", "except OSError: pass",
        "try:", " os.open('another', os.O_CREAT)", "except OSError: pass", "sys.exit(5)"))  # fmt: skip
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["why"]) == (5, "exit")
    assert host.facts("r1")["exit_code"] == 5
    assert console.ended_log("r1")[0] == b"up\n"


def test_on_a_full_disk_starts_are_refused_and_a_console_can_connect(small):
    """Not a byte is free: another console takes over, starts are refused by a fact, and stops leave their
    tombstones."""
    host = small(4)
    host.connect().hello()
    base = host.run_dir("r1").parents[1]
    with open(base / "filler", "wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
        while True:
            filler.write(bytes(65536))
    assert os.statvfs(base).f_bavail == 0
    console = host.connect()
    console.hello(epoch=2)
    for number in range(6):
        console.start(f"r{number}", ["true"], pull=False)
        assert console.closed(f"r{number}")["refusal"] == "disk_full"
    for number in range(4):
        console.stop(f"never-{number}")
        assert console.closed(f"never-{number}")["why"] == "tombstone"
    (base / "filler").unlink()
    console.start("r9", ["sh", "-c", "exit 3"], pull=False)
    assert console.closed("r9")["exit_code"] == 3
    assert len(list(base.glob("spare.*"))) == HOST_SPARES, "and the next time there is room for it again"


def test_a_stop_reaches_a_run_on_a_full_disk(small):
    host = small(4)
    console = host.connect()
    console.hello()
    console.start("r1", command(
        "import time", "f = open('fill', 'wb', buffering=0)",
        "try:", " while True: f.write(bytes(4096))", "except OSError: pass",
        "open(1, 'w', closefd=False)", "time.sleep(600)"))  # fmt: skip
    console.running("r1")
    fill = host.run_dir("r1") / "work" / "fill"
    wait_for(lambda: fill.exists() and os.statvfs(fill).f_bavail == 0, "a full disk")
    console.stop("r1", 0)
    facts = console.closed("r1")
    assert facts["why"] == "stop" and facts["survivors"] == []


def test_a_log_larger_than_the_disk_passes_through_whole(small):
    host = small(32)
    console = host.connect()
    console.hello()
    # The writer waits for free space, as a program that must not lose a line would.
    console.start("r1", command(
        "import os, time", "block = b''.join(b'%015d\\n' % i for i in range(4096))",
        "for n in range(800):",
        " while os.statvfs('.').f_bavail * 4096 < 4 << 20: time.sleep(0.002)",
        " os.write(1, block)"), log_budget_mb=1000)  # fmt: skip
    console.closed("r1")
    found, digest = console.ended_log("r1")
    assert len(found) == 800 * 65536 and "r1" not in console.gaps
    assert digest == log_digest(found)


def test_a_flood_over_the_budget_leaves_the_disk_room(small):
    host = small(48)
    console = host.connect()
    console.hello()
    console.start("r1", command(
        "import os, time", "block = bytes(65536)",
        "for n in range(4000): os.write(1, block); time.sleep(0.0005)", "open('fine', 'w').write('x')"),
        pull=False, log_budget_mb=8)  # fmt: skip
    facts = console.closed("r1")
    assert facts["exit_code"] == 0 and facts["log"]["size"] == 4000 * 65536
