"""A shell on a running run: real sshd, real terminal, real bash."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time

import pytest

from agents import pty
from agents.pty import ShellRefused, open_shell
from agents.targets import Jump
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


def until(shell, mark=None):
    """Everything that the shell says up to the mark, or its end."""
    seen, new = b"", threading.Event()
    shell.watch(new.set)
    while mark is None or mark not in seen:
        new.clear()
        data = None
        with contextlib.suppress(BlockingIOError):
            data = shell.read()
            if data is None:
                assert mark is None, seen
                return seen
        if data:
            seen += data
        elif data is None:
            time.sleep(0.01)
        else:
            assert new.wait(30), seen
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
    until(shell)
    shell.close()
    assert not shell.write_now(b"x")
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
    until(shell)


@NEEDS_A_TERMINAL
def test_what_is_done_at_once_never_waits(machines, key, running):
    """Neither for keys that are exchanged, nor for another thread, nor for the socket; at a jump host neither."""
    gate, host = machines[1], machines[0]
    jump = Jump(gate.user, gate.address, gate.port, gate.host_key_line)
    shell = open_shell(target(host, jumps=(jump,)), key, "t-shells", running, 80, 24)
    shell.write(b"stty -echo; echo no-ech'o'\n")
    until(shell, b"no-echo")
    connection = shell._connection
    assert shell.write_now(b"echo $((6*7))-a\n") and b"42-a" in until(shell, b"-a")
    assert not shell.write_now(b"x" * (pty.MOST_AT_ONCE + 1))
    for each in (connection, connection.through):
        each.clear_to_send.clear()
        assert not shell.write_now(b"x")
        each.clear_to_send.set()
        with held(each.clear_to_send_lock):
            assert not shell.write_now(b"x")
    connection.through.sock._room.unregister(connection.through.sock._inner)
    assert not shell.write_now(b"x")
    connection.through.sock._room.register(connection.through.sock._inner)
    shell._channel.out_window_size, window = 0, shell._channel.out_window_size
    assert not shell.write_now(b"x")
    shell._channel.out_window_size = window
    # What it takes to tell the host of has to wait, too, and nothing of it is lost.
    shell.write(b"head -c 200000 /dev/zero | tr '\\0' z; echo over'-'now\n")
    with held(connection.clear_to_send_lock):
        seen = some_until_busy(shell)
    seen += until(shell, b"over-now")
    assert seen.count(b"z") == 200_000
    shell.close()


@contextlib.contextmanager
def held(lock):
    """By another thread."""
    taken, leave = threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            assert leave.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert taken.wait(30)
        yield
    finally:
        leave.set()
        holder.join()


def some_until_busy(shell):
    seen = b""

    def busy():
        nonlocal seen
        try:
            seen += shell.read()
        except BlockingIOError:
            return True
        return False

    wait_for(busy, "the connection to be busy")
    return seen


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
