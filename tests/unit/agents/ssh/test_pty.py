"""A shell on a running run: real sshd, real terminal, real bash."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import secrets
import select
import socket
import struct
import threading

import paramiko
import pytest
from paramiko.common import MSG_CHANNEL_DATA

from agents.ssh import ahead, gcm_packets, modes, pty
from agents.ssh import dial as dialling
from agents.ssh.dial import dial, open_session, run_command
from agents.ssh.pty import ShellChannel, ShellRefused
from agents.ssh.sockets import CONNECTION_ERRORS
from agents.ssh.targets import Jump, Target
from tests.harness.wait_and_processes import wait_for
from tests.unit.agents.conftest import ready, row, target

pytestmark = pytest.mark.django_db(transaction=True)


def open_shell(where, key, run, **request):
    """A shell that ends with its connection."""
    name = secrets.token_hex(16)
    request = {"shell": name, "new": {"keep_s": 0}, "client": "c", "cols": 80, "rows": 24, **request}
    return pty.open_shell(where, key, {"deployment": "t-shells", "run": run, **request})


@pytest.fixture
def running(machine, key, control_plane, start_fleet):
    """A run that sleeps. Its name is new for each test: no host starts the same run twice."""
    host = row(machine)
    run = f"r-{secrets.token_hex(4)}"
    control_plane.keep.add(run)
    control_plane.start(run, "sh", "-c", "echo here > file; exec sleep 600", env={"COLOUR": "green"})
    fleet = start_fleet(key, control_plane, deployment="t-shells")
    ready(fleet)
    control_plane.hint = lambda: fleet.poke([host.pk])
    wait_for(lambda: control_plane.facts.get(run, {}).get("phase") == "running", "the run to run")
    yield run
    control_plane.stop(run)
    wait_for(lambda: control_plane.facts[run]["phase"] == "closed", "the run to be closed")


class Screen:
    """The output of a shell, read on an event loop as console/live/terminals.py does."""

    def __init__(self, loop, shell):
        self.loop, self.shell = loop, shell
        self.seen, self.ended, self.busy, self.paused, self.events = b"", False, 0, False, []
        loop.call_soon_threadsafe(self.open)

    def open(self):
        self.shell.watch(self.read)
        self.read()

    def read(self):
        while not self.ended and not self.paused:
            try:
                data = self.shell.read()
            except BlockingIOError:
                self.busy += 1
                self.loop.call_later(0.01, self.read)
                return
            self.ended = data is None
            if isinstance(data, dict):
                self.events.append(data)
                continue
            self.seen += data or b""
            if not data:
                return

    def until(self, mark):
        """The output up to the mark, which is then removed from the screen."""
        wait_for(lambda: mark in self.seen, f"the shell to print {mark}")
        return self.do(self.take, self.seen.index(mark) + len(mark))

    def take(self, size):
        taken, self.seen = self.seen[:size], self.seen[size:]
        return taken

    def do(self, function, *arguments):
        """Call a function on the loop."""
        done = concurrent.futures.Future()
        self.loop.call_soon_threadsafe(lambda: done.set_result(function(*arguments)))
        return done.result(30)


def write_without_waiting(screen, keys):
    """Retried, because a thread of the connection may be sending at one moment, but not at every moment."""
    wait_for(lambda: screen.do(screen.shell.write_now, keys), "keys to be sent without waiting")


@pytest.fixture
def look():
    """look(shell) → its Screen."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda shell: Screen(loop, shell)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()


def test_a_shell_has_the_runs_directory_and_environment_and_ends_with_the_run(
    machine, key, control_plane, running, look
):
    shell = open_shell(target(machine), key, running, cols=100, rows=40)
    screen = look(shell)
    shell.write(b"cat file; echo $COLOUR-$((6*7)); stty size; tty -s && echo 'a t'ty\n")
    seen = screen.until(b"a tty")
    assert b"here" in seen and b"green-42" in seen and b"40 100" in seen
    shell.resize(120, 50)
    shell.write(b"stty size; echo on'e'\n")
    assert b"50 120" in screen.until(b"one")
    control_plane.stop(running)
    wait_for(lambda: screen.ended, "the shell to end")
    shell.close()
    assert not screen.do(shell.write_now, b"x")
    with pytest.raises(OSError, match="closed"):
        shell.write(b"x" * 100)


def test_a_flood_is_throttled_and_can_be_interrupted(machine, key, running, look):
    shell = open_shell(target(machine), key, running)
    screen = look(shell)
    shell.write(b"yes trainyard\n")
    screen.until(b"trainyard\r\ntrainyard")
    shell.write(b"\x03echo over'-'now\n")
    screen.until(b"over-now")
    shell.close()
    wait_for(lambda: screen.ended, "the shell to end")


@pytest.fixture
def through(machines):
    """Two targets for the first machine: directly, and through the other machine."""
    gate = machines[1]
    jump = Jump(gate.user, gate.address, gate.port, gate.host_key_line)
    return {"direct": target(machines[0]), "jump": target(machines[0], jumps=(jump,))}


@pytest.mark.parametrize("way", ["direct", "jump"])
def test_writing_without_waiting_never_waits(through, key, running, look, way, monkeypatch):
    """Neither for a key exchange, nor for another thread, nor for the socket or the window."""
    shell = open_shell(through[way], key, running)
    screen = look(shell)
    shell.write(b"stty -echo; echo no-ech'o'\n")
    screen.until(b"no-echo")
    connection, channel = shell._channel._connection, shell._channel._channel
    write_without_waiting(screen, b"echo =$((6*7))=\n")
    screen.until(b"=42=")
    assert not shell.write_now(b"x" * (pty.MAX_AT_ONCE + 1))
    for each in filter(None, (connection, connection.through)):
        each.clear_to_send.clear()
        assert not shell.write_now(b"x")
        each.clear_to_send.set()
        with held(each.clear_to_send_lock):
            assert not shell.write_now(b"x")
    if gate := connection.through:
        gate.sock._writable.unregister(gate.sock._inner)
        assert not shell.write_now(b"x")
        gate.sock._writable.register(gate.sock._inner)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(gcm_packets.os, "write", no_room)
            assert not shell.write_now(b"x")
            # A socket that is nearly full takes a part of a packet: the rest must not be waited for.
            patch.setattr(gcm_packets.os, "write", lambda fd, data: pytest.fail("a packet was begun"))
            connection.sock._writable.unregister(connection.sock._inner)
            assert not shell.write_now(b"x")
            connection.sock._writable.register(connection.sock._inner, select.POLLOUT)
    channel.out_window_size, window = 0, channel.out_window_size
    assert not shell.write_now(b"x")
    channel.out_window_size = window
    # Reading stops when a new window must be reported and that would wait. No output is lost.
    screen.paused = True
    shell.write(b"head -c 200000 /dev/zero | tr '\\0' z; echo over'-'now\n")
    wait_for(lambda: len(channel.in_buffer) > channel.in_window_threshold, "more output than needs no answer")
    with held(connection.clear_to_send_lock):
        # Not before the lock is held: more output wakes the screen, which would read all of it meanwhile.
        before, screen.paused = screen.busy, False
        screen.do(screen.read)
        wait_for(lambda: screen.busy > before, "the connection to be busy")
        assert screen.seen.count(b"z") < 200_000
    assert screen.until(b"over-now").count(b"z") == 200_000
    shell.close()


@pytest.mark.parametrize("way", ["direct", "jump"])
def test_a_key_exchange_works_during_a_flood_of_output(through, key, running, look, way):
    """Afterwards the reader of the connection, its thread and its descriptors are gone."""
    before = set(os.listdir("/proc/self/fd"))
    shell = open_shell(through[way], key, running)
    packetizer = shell._channel._connection.packetizer
    packetizer.REKEY_BYTES = 100_000
    exchanges = []
    honest = packetizer.set_inbound_cipher
    packetizer.set_inbound_cipher = lambda *args, **more: exchanges.append(1) or honest(*args, **more)
    screen = look(shell)
    shell.write(b"seq $((10**6)) $((10**6+150000)); echo over'-'now\n")
    numbers = [int(word) for word in screen.until(b"over-now").split() if word.isdigit()]
    assert numbers == list(range(1_000_000, 1_150_001)) and exchanges
    write_without_waiting(screen, b"echo =$((6*7))=\n")
    screen.until(b"=42=")
    shell.close()
    wait_for(lambda: screen.ended and not shell._channel._connection.is_alive(), "the connection to end")
    wait_for(lambda: set(os.listdir("/proc/self/fd")) <= before, "its descriptors to be closed")


def no_room(fd, data):
    raise BlockingIOError


@contextlib.contextmanager
def held(lock):
    """Another thread holds the lock."""
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


# Hosts that were hacked, or that die at a bad moment


class Lax(paramiko.ServerInterface):
    def check_auth_publickey(self, username, key):
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED


class Hacked:
    """A host that sends what a test wants, and a shell on it."""

    def __init__(self, listener):
        accepted = concurrent.futures.Future()
        threading.Thread(target=lambda: accepted.set_result(self.accept(listener)), daemon=True).start()
        own = paramiko.ECDSAKey.generate()
        self.own = own
        known = f"{own.get_name()} {own.get_base64()}"
        self.near = dial(Target("h", *listener.getsockname()[:2], "u", known), own)
        channel = open_session(self.near, window=pty.WINDOW)
        self.transport = accepted.result(30)
        self.far = self.transport.accept(30)
        self.shell = ShellChannel(self.near, channel, b"")

    def accept(self, listener):
        transport = paramiko.Transport(listener.accept()[0])
        transport.add_server_key(self.own)
        transport.start_server(event=threading.Event(), server=Lax())
        return transport

    def seen(self, look):
        """From the second packet on the event loop reads: paramiko's thread already waits for the first."""
        screen = look(self.shell)
        screen.do(lambda: None)
        self.output(b"honest")
        screen.until(b"honest")
        return screen

    def send(self, kind, *numbers, data=b""):
        message = paramiko.Message(bytes([kind]) + struct.pack(f"!{len(numbers)}I", *numbers) + data)
        with contextlib.suppress(*CONNECTION_ERRORS):
            self.transport.packetizer.send_message(message)

    def output(self, data, claimed=None):
        """Send output, whatever the window is."""
        size = len(data) if claimed is None else claimed
        self.send(MSG_CHANNEL_DATA, self.far.remote_chanid, size, data=data)

    def close(self):
        self.shell.close()
        self.transport.close()


@pytest.fixture
def hacked(look):
    """Closed before the loop stops: a stopped loop could not end the wait of paramiko's thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.closing(Hacked(listener)) as found:
        yield found


def other_keys(hacked):
    """Change to a cipher whose packets are longer than the loop assumes; then send a packet whose end never comes."""
    options, packetizer = hacked.transport.get_security_options(), hacked.transport.packetizer
    options.ciphers, options.digests = ("aes128-ctr",), ("hmac-sha2-256-etm@openssh.com",)
    with contextlib.suppress(*CONNECTION_ERRORS):
        hacked.transport.renegotiate_keys()
    whole = packetizer.write_all
    packetizer.write_all = lambda out: whole(out[:-16])
    hacked.output(b"x" * 100)


def longer_than_it_is(hacked):
    hacked.output(b"", claimed=400_000)


def past_the_window(hacked):
    for _ in range(pty.WINDOW // 32768 + 1):
        hacked.output(b"x" * 32768)


def a_packet_of(*numbers):
    def send(hacked):
        hacked.transport.packetizer._build_packet = lambda payload: struct.pack(f">{len(numbers)}I", *numbers)
        hacked.output(b"")

    return send


HOSTILE = {
    "other keys": other_keys,
    "longer than it is": longer_than_it_is,
    "past the window": past_the_window,
    "empty packet": a_packet_of(0),
    "huge packet": a_packet_of(2**32 - 1, 0),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_the_shell_of_a_hacked_host_ends_and_blocks_no_other(hacked, look, how):
    screen = hacked.seen(look)
    screen.paused = True
    HOSTILE[how](hacked)
    channel = hacked.shell._channel
    wait_for(lambda: channel.closed, "the shell to be ended")
    assert len(channel.in_buffer) <= pty.WINDOW
    screen.paused = False
    screen.do(screen.read)
    wait_for(lambda: screen.ended, "the end to be seen")


def test_a_connection_that_dies_in_a_key_exchange_ends_its_shell(hacked, look):
    """The output from before is shown, although it is so much that a new window would be reported to the host."""
    screen, channel = hacked.seen(look), hacked.shell._channel
    screen.paused = True
    hacked.far.sendall(b"z" * 200_000)
    wait_for(lambda: len(channel.in_buffer) == 200_000, "the output")
    hacked.near.clear_to_send.clear()
    hacked.transport.close()
    wait_for(lambda: channel.closed, "the connection to end")
    screen.paused = False
    screen.do(screen.read)
    wait_for(lambda: screen.ended, "the end to be seen")
    assert screen.seen == b"z" * 200_000


def test_a_viewer_that_raises_once_gets_the_next_output(hacked, look):
    """Also when the output arrived behind a packet for paramiko's thread."""
    screen, shell, packetizer = hacked.seen(look), hacked.shell, hacked.transport.packetizer
    honest = shell.read

    def fail_once():
        shell.read = honest
        raise RuntimeError("a bug of the viewer")

    shell.read = fail_once
    whole, parts = packetizer.write_all, []
    packetizer.write_all = parts.append
    hacked.send(paramiko.common.MSG_IGNORE, 0)
    hacked.output(b"one ")
    packetizer.write_all = whole
    whole(b"".join(parts))
    wait_for(lambda: shell.read == honest, "the failure")
    hacked.output(b"two")
    assert screen.until(b"two") == b"one two"


def test_a_terminal_that_sshd_never_makes_times_out(machine, key, monkeypatch):
    connection = dial(target(machine), key)
    sshd = run_command(connection, "echo $PPID").stdout.decode().strip()

    def open_then_stop(*arguments, **more):
        channel = open_session(connection, **more)
        machine.run_inside("kill", "-STOP", sshd)
        monkeypatch.setattr(dialling, "HANDSHAKE_S", 1.0)
        return channel

    monkeypatch.setattr(modes, "open_session", open_then_stop)
    try:
        with pytest.raises(ShellRefused, match="did not open"):
            pty._open_on(connection, "shell", b"")
    finally:
        machine.run_inside("kill", "-CONT", sshd)
        connection.close()


def test_no_shell_opens_on_a_run_that_does_not_run(machine, key, running):
    with pytest.raises(ShellRefused) as refused:
        open_shell(target(machine), key, "no-such-run")
    assert str(refused.value)
    with pytest.raises(ShellRefused):
        open_shell(target(machine), key, "../../etc; id")


def test_a_host_that_sends_no_greeting_opens_no_shell(machine, key, monkeypatch):
    monkeypatch.setattr(pty.install_runner, "command", lambda sha, mode: "yes no runner here")
    with pytest.raises(ShellRefused, match="greeting"):
        open_shell(target(machine), key, "r")
    monkeypatch.setattr(modes, "GREETING_S", 1.0)
    monkeypatch.setattr(pty.install_runner, "command", lambda sha, mode: "sleep 60")
    with pytest.raises(ShellRefused, match="did not open"):
        open_shell(target(machine), key, "r")


@pytest.fixture
def dialled(monkeypatch):
    """The connections that were made, in their order."""
    found = []

    def dial_and_note(*given, **more):
        found.append(dial(*given, **more))
        return found[-1]

    monkeypatch.setattr(pty, "dial", dial_and_note)
    return found


def test_a_connection_that_was_made_ahead_is_used_once(machine, key, running, look, dialled):
    where = target(machine)
    for _ in range(3):
        pty.prepare_shell(where, key, is_new=True)
    first = open_shell(where, key, running)
    assert len(dialled) == 1, "one waits for each host, and the shell has it"
    screen = look(first)
    first.write(b"echo he''re\n")
    screen.until(b"here")
    second = open_shell(where, key, running)
    assert len(dialled) == 2
    for shell in (first, second):
        shell.close()


def test_a_connection_that_was_made_ahead_attaches_to_a_shell_that_is_there(
    machine, key, running, look, dialled
):
    where, name = target(machine), secrets.token_hex(16)
    first = open_shell(where, key, running, shell=name, new={"keep_s": 60})
    pty.prepare_shell(where, key, is_new=False)
    other = open_shell(where, key, running)
    wait_for(lambda: len(dialled) == 3, "a connection of its own for the new shell")
    request = {"deployment": "t-shells", "run": running, "shell": name, "client": "c", "cols": 80, "rows": 24}
    again = pty.open_shell(where, key, request)
    assert len(dialled) == 3
    first.write(b"echo he''re\n")
    look(again).until(b"here")
    first.end("over")
    for shell in (first, other, again):
        shell.close()


def test_a_connection_that_was_made_ahead_ends_when_nobody_comes(
    machine, key, running, look, dialled, monkeypatch
):
    monkeypatch.setattr(ahead, "KEPT_S", 0.2)
    pty.prepare_shell(target(machine), key, is_new=True)
    wait_for(lambda: dialled and not dialled[0].is_active(), "it to end")
    shell = open_shell(target(machine), key, running)
    assert len(dialled) == 2
    shell.close()


@pytest.mark.parametrize("how", ["it has ended", "it was never made"])
def test_a_connection_that_failed_ahead_is_made_again(machine, key, running, look, dialled, monkeypatch, how):
    where = target(machine)
    if how == "it was never made":
        with monkeypatch.context() as patch:
            patch.setattr(pty.install_runner, "command", lambda sha, mode: "true")
            pty.prepare_shell(where, key, is_new=True)
            wait_for(lambda: not ahead._waiting, "the try to be over")
        assert not dialled[0].is_active()
    else:
        pty.prepare_shell(where, key, is_new=True)
        wait_for(lambda: ahead._waiting[(where, key.asbytes(), "shell")]._made.is_set(), "it to be made")
        dialled[0].sock.close()
        wait_for(lambda: not dialled[0].is_active(), "its thread to see that")
    shell = open_shell(where, key, running)
    assert len(dialled) == 2
    shell.write(b"true\n")
    shell.close()
