"""Shells in containers of podman and Docker."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from agents.runner.processes import all_processes
from agents.runner.shells.frames import CLOSE
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.runtimes.container_runs import pid_in, start
from tests.unit.agents.runner.shell_client import ShellClient


def test_a_shell_is_in_the_container(host, console, engine):
    start(console, "r1", "echo up; exec sleep 600", web_access=True, env={"FOO": "bar"})
    console.text("r1", "up")
    console.running("r1")
    shell = ShellClient(host, "r1")
    shell.type(b"echo $FOO-$TRAINYARD_RUN $TERM; exit\n")
    shell.until(lambda: b"bar-r1 xterm-256color" in shell.screen, "its answer")
    shell.until(lambda: shell.end is not None, "its end")
    shell.drop()
    console.stop("r1", 0)
    console.closed("r1")


def test_a_shell_that_ends_leaves_no_process_in_the_container(host, console, engine):
    start(console, "r1", "echo up; exec sleep 600", web_access=True)
    console.text("r1", "up")
    console.running("r1")
    shell = ShellClient(host, "r1")
    shell.type(b"echo here-$TRAINYARD_RUN\n")
    shell.until(lambda: b"here-r1" in shell.screen, "its answer")
    assert "sh" in names_in(host)
    shell.send(CLOSE, 0, b"enough")
    wait_for(lambda: "sh" not in names_in(host), "no shell to be in the container")
    shell.drop()
    console.stop("r1", 0)
    console.closed("r1")


def names_in(host):
    """The names of the processes in the PID namespace of the container."""
    space, found = os.readlink(f"/proc/{pid_in(host, 'r1')}/ns/pid"), set()
    for pid in all_processes():
        with contextlib.suppress(OSError):  # it has just ended
            if os.readlink(f"/proc/{pid}/ns/pid") == space:
                found.add(Path(f"/proc/{pid}/comm").read_text().strip())
    return found
