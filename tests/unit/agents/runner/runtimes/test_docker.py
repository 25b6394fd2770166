"""Runs in containers of Docker: what is Docker's own. The contract of all engines is in test_containers.py."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from agents.runner.files import take_lock
from agents.runner.processes import children_of, read_process
from agents.runner.runs.orders import Refused, parse_order
from agents.runner.runtimes import containers, docker_containers, docker_follower
from agents.runner.runtimes.docker_containers import DockerContainer
from tests.harness.containers import IMAGE, Docker
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.runtimes.container_runs import (
    client_of,
    connect,
    follower_of,
    is_alive,
    start,
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    engine = Docker(tmp_path_factory.mktemp("docker"))
    engine.make_image()
    yield engine
    engine.remove()


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
    (tmp_path / docker_follower.BASE).write_text("4")
    follower.find_base()
    follower.copy("--follow")
    os.close(log)
    text = (tmp_path / "log").read_bytes()
    assert text == b"own\nnewer lines\n" + docker_follower.LOST + b"after\n"


LOG = """#!/bin/sh
# `docker logs`: all that was printed, or the rest.
echo "$*" >> {place}/asked
case "$*" in *--since*) cat {place}/rest;; *) cat {place}/all;; esac
"""


@pytest.fixture
def follower_at(tmp_path):
    """Makes a follower of a fake Docker, which has printed `printed`, and of that `rest` since the log's last piece."""
    program, opened = tmp_path / "docker", []
    program.write_text(LOG.format(place=tmp_path))
    program.chmod(0o755)

    def make(printed=b"", rest=b""):
        (tmp_path / "all").write_bytes(printed)
        (tmp_path / "rest").write_bytes(rest)
        opened.append(os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND))
        follower = docker_follower.Follower(str(tmp_path), str(program), "x", opened[-1], {os.getppid()})
        follower.find_base()
        return follower

    yield make
    for fd in opened:
        os.close(fd)


def test_a_log_whose_beginning_was_freed_is_resumed(tmp_path, follower_at):
    printed = bytes(range(256)) * 1024
    follower_at(printed).copy("--follow")
    log = (tmp_path / "log").read_bytes()
    assert log == printed
    (tmp_path / "log").write_bytes(bytes(1 << 17) + log[1 << 17 :])  # as after it was shipped
    follower_at(printed + b"more\n").copy("--follow")
    assert (tmp_path / "log").read_bytes()[1 << 17 :] == log[1 << 17 :] + b"more\n"


def test_what_a_full_disk_did_not_take_is_not_copied_again_by_the_next_one(
    tmp_path, follower_at, monkeypatch
):
    follower_at(b"first\n").copy("--follow")
    full, write = follower_at(b"first\nlost\n"), os.write
    monkeypatch.setattr(docker_follower, "FULL_S", 0.2)

    def fail(fd, data):
        if fd == full.log:
            raise OSError(errno.ENOSPC, "full")
        return write(fd, data)

    monkeypatch.setattr(os, "write", fail)
    full.copy("--follow")
    monkeypatch.setattr(os, "write", write)
    follower_at(b"first\nlost\nmore\n").copy("--follow")
    assert (tmp_path / "log").read_bytes() == b"first\nmore\n"


@pytest.mark.parametrize("options", [["--follow"], []])
def test_after_a_loss_it_goes_on_with_what_docker_has_since_the_last_piece(tmp_path, follower_at, options):
    follower_at(b"first\n").copy("--follow")
    os.utime(tmp_path / "log", (10**9, 10**9))
    follower_at(b"other\n", b"since\n").copy(*options)
    log = b"first\n" + docker_follower.LOST + b"since\n"
    assert (tmp_path / "log").read_bytes() == log
    asked = (tmp_path / "asked").read_text().split()
    assert float(asked[asked.index("--since") + 1]) <= 10**9
    # And the next one goes on from there.
    follower_at(b"other\n", b"since\nmore\n").copy(*options)
    assert (tmp_path / "log").read_bytes() == log + b"more\n"


def test_a_follower_that_was_killed_before_it_said_the_loss_has_it_said(tmp_path, follower_at, monkeypatch):
    follower_at(b"first\n").copy("--follow")
    killed = follower_at(b"other\n")
    monkeypatch.setattr(killed, "add", lambda data: (_ for _ in ()).throw(SystemExit))
    with pytest.raises(SystemExit):
        killed.copy("--follow")
    follower_at(b"other\n", b"since\n").copy("--follow")
    assert (tmp_path / "log").read_bytes() == b"first\n" + docker_follower.LOST + b"since\n"


def test_one_that_has_read_all_says_no_loss_when_docker_has_thrown_away_the_beginning(tmp_path, follower_at):
    follower = follower_at(b"first\n")
    follower.copy("--follow")
    (tmp_path / "all").write_bytes(b"other\n")
    follower.copy()
    assert (tmp_path / "log").read_bytes() == b"first\n"


AWAY = """#!/bin/sh
# A daemon that does not answer the first time that it is asked after it was followed for long.
case "$1" in logs) sleep 0.5; touch {place}/over;; *)
  if [ -e {place}/over ] && [ ! -e {place}/away ]; then touch {place}/away; echo "Cannot connect"; exit 1; fi
  if [ -e {place}/over ]; then echo exited 0 7; else echo running {pid} 0; fi;;
esac
"""


def test_a_daemon_that_is_away_for_a_moment_loses_no_end(tmp_path, monkeypatch):
    monkeypatch.setattr(docker_follower, "AWAY_S", 0.4)
    program = tmp_path / "docker"
    program.write_text(AWAY.format(place=tmp_path, pid=2**31 - 1))
    program.chmod(0o755)
    log = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    docker_follower.Follower(str(tmp_path), str(program), "x", log, {os.getppid()}).run()
    os.close(log)
    assert json.loads((tmp_path / docker_follower.END).read_text()) == {"code": 7}
    assert (tmp_path / "away").exists()


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
    assert "keepers" not in closed["message"]


def test_a_daemon_that_is_not_there_refuses_in_the_words_of_the_client(host, engine):
    console = connect(host, engine, DOCKER_HOST="unix:///nowhere/socket")
    start(console, "r1", "true")
    facts = console.closed("r1")
    assert facts["refusal"] == "runtime" and "Cannot connect to the Docker daemon" in facts["message"]


@pytest.fixture
def container(tmp_path):
    """Of a fake Docker whose answers are in the file `state`; its log is silent."""
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\ncase "$1" in logs) exec sleep 60;; *) cat {tmp_path}/state;; esac\n')
    program.chmod(0o755)
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "log").touch()
    known = {"kind": "docker", "program": str(program), "name": "x"}
    return DockerContainer(str(directory), {"runtime": known, "pid": None, "ticks": None})


def test_a_keeper_that_cannot_fork_tries_again(container, monkeypatch):
    def fail(*words):
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", fail)
    assert container.keep_followed(-1, 0, True)
    monkeypatch.setattr(docker_containers, "take_lock", fail)
    assert container.keep_followed(-1, 0, True)


def test_a_directory_that_is_gone_ends_no_keeper(container):
    shutil.rmtree(container.directory)
    assert not container.keep_followed(-1, 0, True)
    docker_follower.Follower(container.directory, "false", "x", -1, {os.getppid()}).end(3)


def test_another_process_with_the_number_of_the_client_is_not_waited_for(container, monkeypatch):
    forks = []
    monkeypatch.setattr(os, "fork", lambda: forks.append(1) or 1)
    with subprocess.Popen(["sleep", "60"]) as client:
        assert container.keep_followed(-1, client.pid, True) and not forks
        client.kill()
    assert container.keep_followed(-1, os.getppid(), True) and forks


def test_the_gpus_are_held_while_the_program_lives_although_all_keepers_are_dead(container, tmp_path):
    program = subprocess.Popen(["sleep", "60"])
    (tmp_path / "state").write_text(f"running {program.pid} 0\n")
    keeper, log = os.fork(), os.path.join(container.directory, "log")
    if keeper == 0:
        os.set_inheritable(take_lock(str(tmp_path / "gpu")), True)
        container.keep_followed(os.open(log, os.O_RDWR | os.O_APPEND), 0, True)
        while True:
            time.sleep(60)
    try:
        wait_for((Path(container.directory) / "container.pid").exists, "its follower")
        follower = next(p.pid for p in map(read_process, children_of(keeper)) if p)
        os.kill(keeper, signal.SIGKILL)
        os.waitpid(keeper, 0)
        wait_for(lambda: is_free(os.path.join(container.directory, "container.lock")), "it to be abandoned")
        assert is_alive(follower) and not is_free(str(tmp_path / "gpu"))
    finally:
        program.kill()
        program.wait()
    wait_for(lambda: is_free(str(tmp_path / "gpu")), "the GPU to be free")
    wait_for(lambda: not is_alive(follower), "the end of the follower")


def is_free(path):
    lock = take_lock(path)
    if lock >= 0:
        os.close(lock)
    return lock >= 0


def test_the_rest_of_the_output_is_waited_for_while_it_comes(container, monkeypatch):
    monkeypatch.setattr(docker_containers, "COPIED_S", 0.5)
    directory = Path(container.directory)
    lock = take_lock(str(directory / docker_follower.LOCK))

    def copy():
        with open(directory / "log", "ab", buffering=0) as log:
            for _ in range(15):
                log.write(b"line\n")
                time.sleep(0.1)
        (directory / docker_follower.END).write_text('{"code": 3}')

    copier = threading.Thread(target=copy)
    copier.start()
    container.wait_until_told(lambda: None)
    found = container.recorded_end()
    copier.join()
    os.close(lock)
    assert found == (os.CLD_EXITED, 3)


def test_a_keeper_asks_how_it_ended_when_the_follower_takes_too_long(container, tmp_path, monkeypatch):
    monkeypatch.setattr(docker_containers, "COPIED_S", 0.1)
    (tmp_path / "state").write_text("exited 0 137\n")
    lock = take_lock(os.path.join(container.directory, docker_follower.LOCK))
    container.wait_until_told(lambda: None)
    os.close(lock)
    assert container.recorded_end() == (os.CLD_EXITED, 137)
    docker_follower.Follower(container.directory, "false", "x", -1, {os.getppid()}).end(None)
    assert container.recorded_end() == (os.CLD_EXITED, 137), "it finds the container removed"


SLOW = """#!/bin/sh
if [ "$1 $2" = "container inspect" ]; then sleep 2; fi
exec {docker} "$@"
"""


def test_a_program_that_just_began_hears_the_stop(host, engine, tmp_path):
    """Although its follower does not know its number yet."""
    program = tmp_path / "slow" / "docker"
    program.parent.mkdir()
    program.write_text(SLOW.format(docker=shutil.which("docker")))
    program.chmod(0o755)
    console = connect(host, engine, PATH=f"{program.parent}:{host.env['PATH']}")
    start(
        console,
        "r1",
        "trap 'echo bye; exit 5' TERM; touch \"$TRAINYARD_WORK/up\"; while true; do sleep 0.1; done",
    )
    wait_for(lambda: list(host.run_dir("r1").glob("work/up")), "its program")
    wait_for(lambda: not client_of(host.facts("r1")), "the end of the client")
    console.stop("r1", 30)
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["why"], facts["never_started"]) == (5, "stop", False)
    # The shell in the container may say of its `sleep` that it was terminated.
    assert console.ended_log("r1")[0].replace(b"Terminated\n", b"") == b"bye\n"
    wait_for(lambda: not engine.containers(), "no container to be left")


LATE = """#!/bin/sh
[ "$1" = run ] || exec {docker} "$@"
{docker} "$@"
exec sleep {seconds}
"""


@pytest.mark.parametrize(("grace", "seconds", "code"), [(30, 2, 5), (1, 600, 137)])
def test_a_program_whose_client_is_still_there_hears_the_stop(host, engine, tmp_path, grace, seconds, code):
    """The daemon has executed it, and the client is about to say so, or never does."""
    program = tmp_path / "slow" / "docker"
    program.parent.mkdir()
    program.write_text(LATE.format(docker=shutil.which("docker"), seconds=seconds))
    program.chmod(0o755)
    console = connect(host, engine, PATH=f"{program.parent}:{host.env['PATH']}")
    heard = "echo bye; exit 5" if code == 5 else ""
    waits = 'touch "$TRAINYARD_WORK/up"; while true; do sleep 0.1; done'
    start(console, "r1", f"trap '{heard}' TERM; echo up; {waits}")
    wait_for(lambda: list(host.run_dir("r1").glob("work/up")), "its program")
    console.stop("r1", grace)
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["why"], facts["never_started"]) == (code, "stop", False)
    # The shell in the container may say of its `sleep` that it was terminated.
    printed = console.ended_log("r1")[0].replace(b"Terminated\n", b"")
    assert printed == (b"up\nbye\n" if code == 5 else b"up\n")
    wait_for(lambda: not engine.containers(), "no container to be left")


NEVER_DONE = """#!/bin/sh
[ "$1" = run ] || exec {docker} "$@"
touch {asked}
exec sleep 600
"""


def test_a_container_that_is_made_long_after_its_client_was_killed_is_removed(host, engine, tmp_path):
    """Its daemon had much to do. Nothing in it is executed, because nobody starts it."""
    program = tmp_path / "slow" / "docker"
    program.parent.mkdir()
    asked = tmp_path / "asked"
    program.write_text(NEVER_DONE.format(docker=shutil.which("docker"), asked=asked))
    program.chmod(0o755)
    console = connect(host, engine, PATH=f"{program.parent}:{host.env['PATH']}")
    start(console, "r1", "exit 5")
    wait_for(asked.exists, "its client")
    console.stop("r1", 0)
    facts = console.closed("r1")
    assert (facts["why"], facts["never_started"]) == ("stop", True)
    console.say("forget", run="r1")
    console.hear("forgotten")
    engine("create", "--name", facts["runtime"]["name"], IMAGE, "true")
    wait_for(lambda: not engine.containers(), "no container to be left")


def test_setuid_programs_of_an_image_get_no_rights(console):
    start(console, "r1", runtime={"entrypoint": ["cat", "/proc/self/status"], "args": []})
    console.closed("r1")
    assert b"NoNewPrivs:\t1\n" in console.ended_log("r1")[0]


@pytest.mark.parametrize("order", [{"env": {"TF_CONFIG": "{}"}}, {"reduction": "reducer"}])
def test_docker_without_root_refuses_a_replica_that_others_have_to_reach(tmp_path, monkeypatch, order):
    info = {"ServerVersion": "28.0", "SecurityOptions": ["name=rootless"]}
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(info)}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    facts = {"mark": "0123456789abcdef:x", "tmp": ""}
    found = {"command": ["unused"], "port": 2000, "runtime": {"kind": "docker", "image": "i"}}
    assert containers.describe(parse_order(found), "r1", str(tmp_path), facts)["rootless"] == "yes"
    with pytest.raises(Refused, match="cannot reach each other"):
        containers.describe(parse_order({**found, **order}), "r1", str(tmp_path), facts)
