"""Copying the runner to a host: cut off, with a full disk, killed meanwhile. No partial copy has the runner's name."""

from __future__ import annotations

import contextlib
import hashlib
import json

import paramiko
import pytest

from agents.ssh import install_runner
from agents.ssh.dial import dial
from agents.ssh.install_runner import RunnerInstallFailed, put_runner
from agents.ssh.targets import Target
from tests.harness.wait_and_processes import wait_for

PROGRAM = b"print('a runner of two megabytes')\n# " + bytes(range(32, 127)) * 22_000
SHA = hashlib.sha256(PROGRAM).hexdigest()


@contextlib.contextmanager
def connected(host):
    key = paramiko.Ed25519Key.from_private_key_file(str(host.fleet.key))
    connection = dial(Target(host.name, host.address, host.port, host.user, host.host_key_line), key)
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture
def place(host):
    """The directory of the runner, empty before and after the test."""
    directory = host.path(f"{host.home}/.trainyard/bin")
    empty(directory)
    yield directory
    host.free_disk()
    empty(directory)


def empty(directory):
    for path in directory.glob("*"):
        path.unlink()


def found(place):
    return sorted(path.name for path in place.iterdir()) if place.exists() else []


def test_a_cut_connection_leaves_nothing_and_the_next_installs_the_whole_runner(host, place):
    """Failure mode 6. The file gets its name only after all of it has been read and compared."""
    with connected(host) as connection:
        channel = connection.open_session()
        channel.exec_command(install_runner.BOOT_COMMAND)
        head = json.dumps({"sha": SHA, "size": len(PROGRAM)}).encode()
        channel.sendall(
            repr(install_runner.PUT_PROGRAM).encode() + b"\n" + head + b"\n" + PROGRAM[: len(PROGRAM) // 2]
        )
        wait_for(lambda: host.processes("sys.stdin.buffer.readline"), "the host to read")
    wait_for(lambda: not host.processes("sys.stdin.buffer.readline"), "the host to give up")
    assert found(place) == []
    with connected(host) as connection:
        assert put_runner(connection, PROGRAM) == SHA
    assert found(place) == [f"{SHA}.pyz"] and (place / f"{SHA}.pyz").read_bytes() == PROGRAM


@pytest.mark.needs_namespaces
def test_a_full_disk_is_reported_and_leaves_no_part_of_a_runner(host, place):
    with connected(host) as connection:
        put_runner(connection, b"pass\n")
        host.fill_disk(leave_kb=64)
        with pytest.raises(RunnerInstallFailed, match="No space left on device"):
            put_runner(connection, PROGRAM)
        assert len(found(place)) == 1
        host.free_disk()
        assert put_runner(connection, PROGRAM) == SHA
    assert (place / f"{SHA}.pyz").read_bytes() == PROGRAM
