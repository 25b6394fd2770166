"""Runs in containers of Docker: what is Docker's own. The contract of all engines is in test_containers.py."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import pytest

from agents.runner.runtimes import docker_follower
from tests.harness.containers import Docker
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.test_containers import client_of, connect, follower_of, is_alive, start


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    engine = Docker(tmp_path_factory.mktemp("docker"))
    engine.make_image()
    yield engine
    engine.remove()


@pytest.fixture
def console(host, engine):
    yield connect(host, engine)
    wait_for(lambda: not engine.containers(), "no container to be left")


# 3 MB, most of it no text, on both outputs, with a halt in the middle. Docker hands a line on when it is complete.
OUTPUT = (
    'i=0; while [ $i -lt 48 ]; do head -c 65536 "$TRAINYARD_WORK/noise"; echo err-$i >&2; i=$((i+1));'
    ' if [ $i = 24 ]; then while [ ! -e "$TRAINYARD_WORK/go" ]; do sleep 0.05; done; fi; done; exit 4'
)


@pytest.mark.parametrize("victim", [None, "client", "follower"])
def test_each_byte_of_both_outputs_is_in_the_log_once(host, console, engine, victim):
    noise = os.urandom(65535) + b"\n"
    start(console, "r1", 'while [ ! -e "$TRAINYARD_WORK/noise" ]; do sleep 0.05; done; ' + OUTPUT)
    facts = console.running("r1")
    work = Path(facts["work"])
    (work / "new").write_bytes(noise)
    (work / "new").rename(work / "noise")
    log = host.run_dir("r1") / "log"
    half, whole = 24 * 65536, 48 * 65536 + sum(len(f"err-{i}\n") for i in range(48))
    wait_for(lambda: log.stat().st_size > half, "half of the output")
    if victim:
        pid = client_of(facts) if victim == "client" else follower_of(facts)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not is_alive(pid), "its end")
    (work / "go").touch()
    facts = console.closed("r1")
    assert facts["exit_code"] == 4
    expected = sorted(hashlib.sha256(noise).hexdigest() for _ in range(48))
    text = console.ended_log("r1")[0]
    assert len(text) == whole
    for i in range(48):
        text = text.replace(f"err-{i}\n".encode(), b"", 1)
    pieces = [text[at : at + 65536] for at in range(0, len(text), 65536)]
    assert sorted(hashlib.sha256(piece).hexdigest() for piece in pieces) == expected


def test_what_docker_has_thrown_away_is_said_in_the_log(tmp_path):
    log = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.write(log, b"own\nnewer lines\n")
    said = tmp_path / "docker"
    said.write_text(
        '#!/bin/sh\nshift; case "$*" in *--since*) echo after;; *) echo other lines; echo after;; esac\n'
    )
    said.chmod(0o755)
    follower = docker_follower.Follower(str(tmp_path), str(said), "x", log, {os.getppid()})
    follower.base = 4
    follower.copy("--follow")
    os.close(log)
    text = (tmp_path / "log").read_bytes()
    assert text == b"own\nnewer lines\n" + docker_follower.LOST + b"after\n"


def test_the_daemon_is_killed_and_comes_again(host, tmp_path):
    """Without `live-restore` it ends the containers that it finds: that is their end, and it is told."""
    engine = Docker(tmp_path / "docker")
    try:
        engine.make_image()
        console = connect(host, engine)
        start(console, "r1", "echo up; exec sleep 600")
        console.text("r1", "up")
        facts = console.running("r1")
        engine.stop(signal.SIGKILL)
        assert is_alive(facts["pid"]), "the program goes on without the daemon"
        (engine.place / "pid").unlink()
        engine.start()
        closed = console.closed("r1")
        assert closed["why"] == "exit" and closed["exit_code"] in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
        assert console.ended_log("r1")[0] == b"up\n"
        assert not engine.containers()
    finally:
        engine.remove()


def test_a_container_that_somebody_removed_is_lost(host, console, engine):
    start(console, "r1", "echo up; exec sleep 600")
    console.text("r1", "up")
    facts = console.running("r1")
    engine("rm", "--force", facts["runtime"]["name"])
    closed = console.closed("r1")
    assert closed["why"] in ("lost", "exit") and not is_alive(facts["pid"])


def test_a_daemon_that_is_not_there_refuses_in_the_words_of_the_client(host, engine):
    console = connect(host, engine, DOCKER_HOST="unix:///nowhere/socket")
    start(console, "r1", "true")
    facts = console.closed("r1")
    assert facts["refusal"] == "runtime" and "Cannot connect to the Docker daemon" in facts["message"]
