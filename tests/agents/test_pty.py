"""A shell on a running run: real sshd, real terminal, real bash."""

from __future__ import annotations

import secrets

import pytest

from agents import pty
from agents.pty import ShellRefused, open_shell
from tests.agents.conftest import ready, row, target
from tests.harness.shell import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

# An sshd of an ordinary user gives no terminal to anybody.
NEEDS_A_TERMINAL = pytest.mark.needs_namespaces


@pytest.fixture
def running(machine, key, desk, start_fleet):
    """A run that waits. Its name is new for each test: no host ever starts the same run twice."""
    host = row(machine)
    run = f"r-{secrets.token_hex(4)}"
    desk.keep.add(run)
    desk.start(run, "sh", "-c", "echo here > file; exec sleep 600", env={"COLOUR": "green"})
    fleet = start_fleet(key, desk, deployment="t-shells")
    ready(fleet)
    desk.hint = lambda: fleet.poke([host.pk])
    wait_for(lambda: desk.facts.get(run, {}).get("phase") == "running", "the run to run")
    yield run
    desk.stop(run)
    wait_for(lambda: desk.facts[run]["phase"] == "closed", "the run to be closed")


def until(shell, mark):
    """Everything that the shell says up to the mark."""
    seen = b""
    while mark not in seen:
        data = shell.read()
        assert data, seen
        seen += data
    return seen


@NEEDS_A_TERMINAL
def test_a_shell_is_in_the_runs_directory_and_environment_and_ends_with_it(machine, key, desk, running):
    shell = open_shell(target(machine), key, "t-shells", running, 100, 40)
    shell.write(b"cat file; echo $COLOUR-$((6*7)); stty size; tty -s && echo 'a t'ty\n")
    seen = until(shell, b"a tty")
    assert b"here" in seen and b"green-42" in seen and b"40 100" in seen
    shell.resize(120, 50)
    shell.write(b"stty size; echo on'e'\n")
    assert b"50 120" in until(shell, b"one")
    desk.stop(running)
    while shell.read():
        pass
    shell.close()
    with pytest.raises(OSError, match="closed"):
        shell.write(b"x" * 100)


@NEEDS_A_TERMINAL
def test_a_flood_is_throttled_and_can_be_interrupted(machine, key, running):
    shell = open_shell(target(machine), key, "t-shells", running, 80, 24)
    shell.write(b"yes trainyard\n")
    until(shell, b"trainyard\r\ntrainyard")
    shell.write(b"\x03echo over'-'now\n")
    until(shell, b"over-now")
    shell.close()
    assert shell.read() == b""


def test_no_shell_opens_on_a_run_that_does_not_run(machine, key, running):
    with pytest.raises(ShellRefused) as refused:
        open_shell(target(machine), key, "t-shells", "no-such-run", 80, 24)
    assert str(refused.value)
    with pytest.raises(ShellRefused):
        open_shell(target(machine), key, "t-shells", "../../etc; id", 80, 24)


@NEEDS_A_TERMINAL
def test_a_host_that_only_talks_opens_no_shell(machine, key, monkeypatch):
    monkeypatch.setattr(pty.install, "command", lambda sha, mode: "yes no runner here")
    with pytest.raises(ShellRefused, match="greeting"):
        open_shell(target(machine), key, "t-shells", "r", 80, 24)
    monkeypatch.setattr(pty, "GREETING_S", 1.0)
    monkeypatch.setattr(pty.install, "command", lambda sha, mode: "sleep 60")
    with pytest.raises(ShellRefused, match="did not open"):
        open_shell(target(machine), key, "t-shells", "r", 80, 24)
