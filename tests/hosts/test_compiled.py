"""What is kept of the runner's compiled modules, on real hosts: a full disk, and one that cannot be written to."""

from __future__ import annotations

import pytest

from agents.runner.compiled import ENDING
from agents.ssh import install_runner
from agents.ssh.dial import run_command
from agents.ssh.install_runner import put_runner
from tests.harness.wait_and_processes import wait_for
from tests.hosts.test_shipping import connected, empty, found

PREFACE = b"TRAINYARD-SHELL 1\n"


@pytest.fixture
def place(host):
    """The directory of the runner, empty before and after the test."""
    directory = host.path(f"{host.home}/.trainyard/bin")
    empty(directory)
    yield directory
    host.free_disk()
    directory.chmod(0o700)
    wait_for(lambda: not host.processes("trainyard-compile"), "nobody to compile any more")
    empty(directory)


def start(connection):
    done = run_command(connection, install_runner.command(install_runner.shipped_sha(), "attach"), timeout=60)
    assert done.stdout.startswith(PREFACE) and b"before the request" in done.stdout and done.stderr == b""


def compiled(place):
    return [name for name in found(place) if name.endswith(ENDING)]


def test_it_is_there_after_the_first_start_and_anew_after_each_installation(host, place):
    with connected(host) as connection:
        put_runner(connection)
        start(connection)
        wait_for(lambda: compiled(place), "the modules to be compiled")
        [name] = compiled(place)
        (place / name).write_bytes(b"written by a job")
        put_runner(connection)
        assert compiled(place) == []
        start(connection)
        wait_for(lambda: compiled(place) == [name], "the modules to be compiled anew")
        start(connection)
    wait_for(lambda: not host.processes("trainyard-compile"), "nobody to compile any more")
    assert found(place) == sorted([f"{install_runner.shipped_sha()}.pyz", name])


@pytest.mark.needs_namespaces
def test_a_full_disk_and_one_that_cannot_be_written_to_cost_no_start(host, place):
    with connected(host) as connection:
        put_runner(connection)
        host.fill_disk(leave_kb=64)
        start(connection)
        assert found(place) == [f"{install_runner.shipped_sha()}.pyz"]
        host.free_disk()
        place.chmod(0o500)
        start(connection)
        put_runner(connection)
        wait_for(lambda: not host.processes("trainyard-compile"), "nobody to compile")
        assert found(place) == [f"{install_runner.shipped_sha()}.pyz"]
        place.chmod(0o700)
        start(connection)
        wait_for(lambda: compiled(place), "the modules to be compiled")
