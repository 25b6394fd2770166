"""SSH servers of hacked hosts: each is disconnected with its reason, at little cost in memory and CPU."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import statistics
import subprocess
import sys
import time
from pathlib import Path

import paramiko
import pytest

from agents.ssh import peer_limits, pty
from agents.ssh.dial import (
    DialError,
    HostMisbehaves,
    SshdBusy,
    dial,
    open_session,
    run_command,
    start_command,
)
from agents.ssh.packets import TURN_PACKETS
from agents.ssh.peer_limits import OUTPUT_RATE, PeerMisbehaved, TokenBucket
from agents.ssh.sockets import CONNECTION_ERRORS
from agents.ssh.targets import Jump, Target
from tests.harness.wait_and_processes import wait_for
from tests.unit.agents.ssh.hostile_server import (
    ATTACKS_AT_DIALLING,
    ATTACKS_ON_A_CHANNEL,
    BYTE_BY_BYTE,
    ECHO,
)

# What one attack may cost. Without the limits it is up to a gigabyte, or all the CPU that it can get.
MEMORY_MB = 40
CPU_S = 5.0
HOW_LONG_S = 14.0


@pytest.fixture
def serve():
    """serve(attack) → the target of a new hostile server."""
    started = []

    def start(attack):
        command = [sys.executable, "-m", "tests.unit.agents.ssh.hostile_server", attack]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(server)
        port, kind, key = server.stdout.readline().split()
        return Target("hacked", "127.0.0.1", int(port), "train", f"{kind} {key}")

    yield start
    for server in started:
        server.kill()
        server.wait()
        server.stdout.close()


@contextlib.contextmanager
def bounded():
    """What is done inside costs little memory at any moment, and little CPU."""
    grown_from, used_from, began = resident_mb(), time.process_time(), time.monotonic()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    yield
    assert resident_mb("VmHWM") - grown_from < MEMORY_MB
    assert time.process_time() - used_from < CPU_S
    assert time.monotonic() - began < HOW_LONG_S


def resident_mb(what="VmRSS"):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1024


@pytest.fixture(scope="module")
def key():
    return paramiko.ECDSAKey.generate()


@pytest.mark.parametrize("attack", ATTACKS_AT_DIALLING)
def test_a_hostile_server_is_disconnected_while_it_is_dialled(serve, key, attack):
    target = serve(attack)
    with bounded(), pytest.raises(DialError) as refused:
        dial(target, key).close()
    # paramiko itself takes a hundred lines before the version, and no more.
    expected = SshdBusy if attack == "lines before the version" else HostMisbehaves
    assert isinstance(refused.value, expected), refused.value


@pytest.mark.parametrize("attack", ATTACKS_ON_A_CHANNEL)
def test_a_hostile_server_is_disconnected_while_nobody_reads_what_it_sends(serve, key, attack):
    """A link reads as fast as reports are stored. Meanwhile the connection must hold only what the window allows."""
    connection = dial(serve(attack), key)
    try:
        with bounded():
            channel = open_session(connection)
            with contextlib.suppress(*CONNECTION_ERRORS):
                start_command(channel, "true")
            wait_for(lambda: not connection.is_alive(), "the connection to end", HOW_LONG_S)
        assert connection.misbehaviour, connection.saved_exception
    finally:
        connection.close()


class Viewer:
    """A shell without a terminal, which the running event loop reads."""

    def __init__(self, target, key):
        self.opened_at = time.monotonic()
        self.connection = dial(target, key)
        channel = open_session(self.connection, window=pty.WINDOW)
        start_command(channel, "true")
        self.shell = pty.ShellChannel(self.connection, channel, b"")
        # Of each turn of the event loop, how many bytes it brought.
        self.turns = []

    def watch(self):
        self.changed = asyncio.Event()
        self.shell.watch(self.take)

    def take(self):
        self.turns.append(0)
        with contextlib.suppress(BlockingIOError):
            while data := self.shell.read():
                self.turns[-1] += len(data)
        self.changed.set()

    async def echo_s(self):
        """How long a key takes to the host and back."""
        self.changed.clear()
        began = time.monotonic()
        assert self.shell.write_now(b"k")
        await asyncio.wait_for(self.changed.wait(), 30)
        return time.monotonic() - began


@pytest.fixture
def view(serve, key):
    """view(attack) → a Viewer, which is closed at the end."""
    opened = []

    def open_viewer(attack):
        opened.append(Viewer(serve(attack), key))
        return opened[-1]

    yield open_viewer
    for viewer in opened:
        viewer.connection.close()


@pytest.mark.parametrize("attack", ["output of nothing", "errors of nothing", "messages to be ignored"])
def test_packets_that_carry_nothing_end_a_shell_that_the_event_loop_reads(view, attack):
    hacked, honest = view(attack), view(ECHO)

    async def attacked():
        hacked.watch()
        honest.watch()
        until = time.monotonic() + HOW_LONG_S
        while hacked.connection.is_alive() and time.monotonic() < until:
            await honest.echo_s()
        hacked.shell.close()
        honest.shell.close()
        await asyncio.sleep(0.1)

    asyncio.run(attacked())
    assert "brings no output" in hacked.connection.misbehaviour, hacked.connection.saved_exception


def test_a_shell_that_floods_small_packets_leaves_the_event_loop_to_others(view):
    """A read can bring 1,800 packets of a byte, which take 0.1 s; and they are never at an end."""
    hacked, honest = view(BYTE_BY_BYTE), view(ECHO)
    echoes = []

    async def attacked():
        honest.watch()
        await honest.echo_s()
        hacked.watch()
        until = time.monotonic() + 6.0
        while time.monotonic() < until:
            echoes.append(await honest.echo_s())
            await asyncio.sleep(0.005)
        seconds = time.monotonic() - hacked.opened_at
        hacked.shell.close()
        honest.shell.close()
        await asyncio.sleep(0.1)
        return seconds

    seconds = asyncio.run(attacked())
    at_once, per_s = OUTPUT_RATE
    print(
        f"{len(hacked.turns)} turns, {sum(hacked.turns)} bytes; echo {statistics.median(echoes) * 1000:.1f} ms"
    )
    assert at_once < sum(hacked.turns) <= at_once + (seconds + 1.0) * per_s
    # The first turns bring what paramiko's thread had read before.
    assert statistics.median(hacked.turns) <= TURN_PACKETS, "a turn does not take all that has arrived"


def test_a_command_of_a_hostile_server_raises_with_the_reason(serve, key):
    connection = dial(serve("a huge packet"), key)
    try:
        with pytest.raises(HostMisbehaves, match="a packet of"):
            run_command(connection, "true", timeout=HOW_LONG_S)
    finally:
        connection.close()


@pytest.mark.parametrize("attack", ["output that claims more", "a huge packet", "messages to be ignored"])
def test_a_hostile_jump_host_is_disconnected(serve, key, attack):
    gate = serve(attack)
    jump = Jump(gate.user, gate.address, gate.port, gate.pinned_key)
    behind = dataclasses.replace(gate, address="10.0.0.1", port=22, jumps=(jump,))
    with bounded(), pytest.raises(HostMisbehaves, match="jump host"):
        dial(behind, key).close()


def test_a_bucket_lets_so_many_through_at_once_and_then_so_many_a_second():
    now = [100.0]
    bucket = TokenBucket(3, 2.0, lambda: now[0])
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    now[0] += 1.0
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    now[0] += 100.0
    assert bucket.spend(3) == 0.0 and bucket.spend(4) == 2.0


def test_honest_keys_and_signatures_are_read():
    for kind in (paramiko.ECDSAKey.generate(), paramiko.RSAKey.generate(2048)):
        peer_limits.check_key(kind.asbytes())
        algorithm = "rsa-sha2-256" if kind.get_name() == "ssh-rsa" else None
        peer_limits.check_signature(kind.sign_ssh_data(b"data", algorithm).asbytes())
    with pytest.raises(PeerMisbehaved):
        peer_limits.check_key(b"\0\0\0\5abc")
