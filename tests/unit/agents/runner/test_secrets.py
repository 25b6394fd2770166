"""The environment of an order is for the replica: in no command line, in no other file, and nowhere once the run is
over."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from agents.runner.processes import all_processes
from tests.unit.agents.runner.protocol_client import command, wait_for

CANARY = "canary-7f3a91c2"


def holding(host):
    """Names of the host's files that hold the canary."""
    found = []
    for path in host.home.rglob("*"):
        with contextlib.suppress(OSError):  # it is gone already, or is not a file
            if path.is_file() and CANARY.encode() in path.read_bytes():
                found.append(path.name)
    return found


def command_lines():
    for pid in all_processes():
        with contextlib.suppress(OSError):
            yield Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize("end", ["exit", "stop", "refused", "tombstone"])
def test_a_secret_of_the_environment_is_on_the_host_only_while_the_run_lives(console, host, end):
    order = {"env": {"TOKEN": CANARY}}
    if end == "tombstone":
        console.stop("r1")
    program = command("import os, sys, time", "print('got', len(os.environ['TOKEN']))",
                      "time.sleep(0 if sys.argv[1] == 'exit' else 600)")  # fmt: skip
    console.start("r1", ["no-such-program"] if end == "refused" else [*program, end], **order)
    if end == "stop":
        console.text("r1", f"got {len(CANARY)}")
        assert holding(host) == ["order.json"]
        assert not any(CANARY.encode() in line for line in command_lines())
        console.stop("r1", 0)
    assert console.closed("r1")["why"] == end
    console.ended_log("r1")
    wait_for(lambda: not holding(host), "the run's files to be clean")
