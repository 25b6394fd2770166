"""Dialling and installing the runner, against a real sshd and against other listeners."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import socket
import threading
import time

import paramiko
import pytest

from agents.ssh import dial as dialling
from agents.ssh import install_runner
from agents.ssh.dial import (
    AuthFailed,
    HandshakeLimiter,
    HostKeyChanged,
    HostKeyUnknown,
    QuickAckSocket,
    SshdBusy,
    Unreachable,
    dial,
    run_command,
    start_command,
)
from agents.ssh.install_runner import RunnerInstallFailed, put_runner
from agents.ssh.sockets import CONNECTION_ERRORS
from agents.ssh.targets import Jump
from tests.harness.wait_and_processes import wait_for
from tests.unit.agents.conftest import target


@contextlib.contextmanager
def dialled(*arguments, **changes):
    connection = dial(*arguments, **changes)
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture
def mute():
    """A port that accepts connections and never sends anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def short_timeouts(monkeypatch):
    monkeypatch.setattr(dialling, "HANDSHAKE_S", 1.0)
    monkeypatch.setattr(dialling, "CONNECT_S", 1.0)


def other_key():
    key = paramiko.ECDSAKey.generate()
    return f"{key.get_name()} {key.get_base64()}"


def no_threads():
    return not any(isinstance(thread, paramiko.Transport) for thread in threading.enumerate())


# Dialling


def test_a_connection_has_its_socket_options_and_the_fast_cipher(machine, key):
    with dialled(target(machine), key) as connection:
        inner = connection.sock._inner
        assert inner.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert inner.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 12000
        assert connection.remote_cipher == "aes128-gcm@openssh.com"
        done = run_command(connection, "cat; echo err >&2; exit 5", b"in" * 100_000)
        assert (done.stdout, done.stderr, done.status) == (b"in" * 100_000, b"err\n", 5)
    wait_for(no_threads, "paramiko's threads to end")


def test_the_size_of_a_packet_is_known_when_it_has_arrived_whole():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = QuickAckSocket(socket.create_connection(listener.getsockname()), 12)
        far = listener.accept()[0]
    with far, contextlib.closing(near):
        packet = (32).to_bytes(4, "big") + bytes(32) + b"t" * 16
        far.sendall(packet[:3] * 2)
        assert near.recv(3) == packet[:3] and near.packet_size() == 0
        near.feed(packet[3:-1])
        assert near.packet_size() == 0
        near.feed(packet[-1:] + packet)
        for _ in range(2):
            assert near.packet_size() == len(packet)
            assert near.recv(16) + near.recv(len(packet) - 16) == packet
        assert near.packet_size() == 0
        near.feed(b"\xff\xff\xff\xff")
        with pytest.raises(paramiko.SSHException, match="a packet of 4294967295 bytes"):
            near.packet_size()
        near.stop_waiting()
        far.sendall(b"more")
        assert near.recv(99) == b"\xff\xff\xff\xff"
        with pytest.raises(EOFError):
            near.recv(1)


def test_a_duplicate_descriptor_is_of_this_socket_while_another_thread_closes_it(monkeypatch):
    dup, closers = os.dup, []

    def dup_while_it_is_closed(number):
        closers.append(threading.Thread(target=near.close))
        closers[0].start()
        closers[0].join(0.2)
        return dup(number)

    monkeypatch.setattr(os, "dup", dup_while_it_is_closed)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = QuickAckSocket(socket.create_connection(listener.getsockname()), 12)
        inode = os.fstat(near._inner.fileno()).st_ino
        own = near.descriptor()
        assert os.fstat(own).st_ino == inode
        os.close(own)
        closers[0].join(30)
        monkeypatch.undo()
        with pytest.raises(OSError, match="descriptor"):
            near.descriptor()


def test_an_unknown_or_changed_host_key_raises_and_nothing_is_sent(own_machine):
    key = paramiko.Ed25519Key.from_private_key_file(str(own_machine.fleet.key))
    with pytest.raises(HostKeyUnknown) as unknown:
        dial(target(own_machine, pinned_key=""), key)
    assert unknown.value.offered == own_machine.host_key_line and unknown.value.at == ""
    pinned = other_key()
    with pytest.raises(HostKeyChanged) as changed:
        dial(target(own_machine, pinned_key=pinned), key)
    assert (changed.value.pinned, changed.value.offered) == (pinned, own_machine.host_key_line)
    assert "publickey" not in own_machine.sshd_log()
    wait_for(no_threads, "paramiko's threads to end")


def test_each_failure_has_its_own_exception(machine, key, mute, short_timeouts):
    stranger = paramiko.ECDSAKey.generate()
    with pytest.raises(AuthFailed, match=machine.user):
        dial(target(machine), stranger)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[1]
    with pytest.raises(Unreachable, match="refused"):
        dial(target(machine, address="127.0.0.1", port=nobody), key)
    with pytest.raises(Unreachable):
        dial(target(machine, address="no-such-host.invalid"), key)
    with pytest.raises(SshdBusy, match="handshake"):
        dial(target(machine, address="127.0.0.1", port=mute), key)
    wait_for(no_threads, "paramiko's threads to end")


def test_one_deadline_ends_whatever_is_waited_for(machine, key, mute, monkeypatch):
    """The name, the turn at an sshd that others wait for, and the handshake."""
    asked = []

    def look_up(host, port, seconds):
        asked.append(seconds)
        return ("127.0.0.1",)

    monkeypatch.setattr(dialling.name_lookup, "addresses", look_up)
    still = dataclasses.replace(target(machine), port=mute)
    began = time.monotonic()
    with pytest.raises(SshdBusy, match="not with an SSH handshake"):
        dial(still, key, until=began + 0.5)
    with dialling.HANDSHAKES.handshake(f"127.0.0.1:{mute}"), pytest.raises(SshdBusy, match="take too long"):
        dial(dataclasses.replace(still, address="127.0.0.1"), key, until=time.monotonic() + 0.5)
    with pytest.raises(SshdBusy, match="it took too long"):
        dial(still, key, until=time.monotonic() - 1)
    assert len(asked) == 2 and max(asked) <= 0.5 and time.monotonic() - began < dialling.HANDSHAKE_S
    wait_for(no_threads, "the threads of the connections to end")


def test_a_jump_host_has_its_own_pinned_key(machines, key):
    gate, inner = machines
    jump = Jump(gate.user, gate.address, gate.port, gate.host_key_line)
    through = target(inner, jumps=(jump,))
    with dialled(through, key) as connection:
        assert run_command(connection, "echo $TEST_HOST").stdout.decode().strip() == str(inner.dir)
    wrong = dataclasses.replace(through, jumps=(dataclasses.replace(jump, pinned_key=other_key()),))
    with pytest.raises(HostKeyChanged) as changed:
        dial(wrong, key)
    assert changed.value.at == jump.endpoint
    nowhere = dataclasses.replace(through, port=1)
    with pytest.raises(Unreachable, match="jump host"):
        dial(nowhere, key)
    wait_for(no_threads, "paramiko's threads to end")


def test_handshakes_are_one_at_a_time_with_each_sshd_and_limited_in_all():
    limiter, inside, counts, leave = HandshakeLimiter(2), [], [], threading.Event()

    def enter(endpoint):
        with limiter.handshake(endpoint):
            inside.append(endpoint)
            counts.append(len(inside))
            leave.wait(30)
            inside.remove(endpoint)

    threads = [threading.Thread(target=enter, args=(endpoint,)) for endpoint in ("a", "a", "b", "c")]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(inside) == 2, "two handshakes")
    assert inside.count("a") == 1
    leave.set()
    for thread in threads:
        thread.join(30)
    assert max(counts) == 2 and len(counts) == 4


def test_a_command_is_limited_in_output_and_time(machine, key, monkeypatch):
    monkeypatch.setattr(dialling, "MAX_OUTPUT", 100_000)
    with dialled(target(machine), key) as connection:
        with pytest.raises(SshdBusy):
            run_command(connection, "sleep 60", timeout=0.5)
        with pytest.raises(SshdBusy):
            run_command(connection, "head -c 1000000 /dev/zero", timeout=30)
        assert (
            run_command(connection, "head -c 90000 /dev/zero >&2; echo still here", timeout=30).stdout
            == b"still here\n"
        )


def test_a_command_that_sshd_never_answers_times_out(machine, key, short_timeouts):
    """paramiko itself would wait for that answer for ever, and block the host's thread."""
    with dialled(target(machine), key) as connection:
        sshd = run_command(connection, "echo $PPID").stdout.decode().strip()
        channel = dialling.open_session(connection)
        machine.run_inside("kill", "-STOP", sshd)
        try:
            with pytest.raises(CONNECTION_ERRORS):
                start_command(channel, "true")
        finally:
            machine.run_inside("kill", "-CONT", sshd)


def test_a_connection_that_ends_while_a_command_is_sent_raises(machine, key, short_timeouts):
    """paramiko signalled the end before anybody waited for the signal, and does not signal it again."""
    with dialled(target(machine), key) as connection:
        channel = dialling.open_session(connection)
        begin = channel._event_pending

        def end_first():
            connection.close()
            begin()

        channel._event_pending = end_first
        with pytest.raises(CONNECTION_ERRORS):
            start_command(channel, "true")


# Installing


def test_the_runner_is_installed_once_and_again_when_it_was_damaged(machine, key):
    program = b"print('hello from the runner')\n# \xff\xfe not text\n" * 1000
    place = machine.path(f"{machine.home}/.trainyard/bin/{hashlib.sha256(program).hexdigest()}.pyz")
    with dialled(target(machine), key) as connection:
        assert put_runner(connection, program) == place.stem
        assert place.read_bytes() == program
        first = place.stat().st_ino
        put_runner(connection, program)
        assert place.stat().st_ino == first, "a whole runner is not written again"
        place.write_bytes(program[:-5])
        put_runner(connection, program)
        assert place.read_bytes() == program
    assert [path.name for path in place.parent.iterdir() if path.name.startswith(".")] == []
    assert place.parent.stat().st_mode & 0o077 == 0


def test_installing_the_runner_removes_what_was_compiled_of_it_before(machine, key):
    """Any job of the login could have written it. That of other runners is theirs."""
    program = b"print('hello')\n"
    sha = hashlib.sha256(program).hexdigest()
    place = machine.path(f"{machine.home}/.trainyard/bin")
    with dialled(target(machine), key) as connection:
        put_runner(connection, program)
        for name in (f"{sha}.0123456789abcdef.code", f"{'f' * 64}.0123456789abcdef.code"):
            (place / name).write_bytes(b"code")
        (place / f"{sha}.fedcba9876543210.code").mkdir()  # in the way, and read by no start
        put_runner(connection, program)
    left = {path.name for path in place.iterdir() if path.name.endswith(".code")}
    assert left == {f"{'f' * 64}.0123456789abcdef.code", f"{sha}.fedcba9876543210.code"}
    (place / f"{'f' * 64}.0123456789abcdef.code").unlink()
    (place / f"{sha}.fedcba9876543210.code").rmdir()


def test_a_runner_that_cannot_be_written_raises_with_the_hosts_message(own_machine):
    key = paramiko.Ed25519Key.from_private_key_file(str(own_machine.fleet.key))
    own_machine.path(f"{own_machine.home}/.trainyard").write_text("in the way")
    with (
        dialled(target(own_machine), key) as connection,
        pytest.raises(RunnerInstallFailed, match="exists|directory"),
    ):
        put_runner(connection)


def test_the_probe_answers_in_one_line_of_json(machine, key):
    with dialled(target(machine), key) as connection:
        sha = put_runner(connection)
        facts = json.loads(run_command(connection, install_runner.command(sha, "probe"), timeout=60).stdout)
    assert facts["user"] == machine.user
