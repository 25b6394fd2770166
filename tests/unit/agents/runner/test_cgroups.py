"""Cgroups of v2: controllers are delegated although this login's processes are in the way, and no cgroup stays
behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agents.runner.home import Home
from agents.runner.runs import cleanup
from agents.runner.runs import lifecycle as run_lifecycle
from agents.runner.runs.containment import (
    LOGIN,
    PROBE_KEPT_S,
    cgroup_path,
    delegate_controller,
    delegated_cgroup,
    fork_into,
    remove_cgroup,
    try_write,
)
from agents.runner.runs.lifecycle import RunLifecycle
from tests.unit.agents.runner.protocol_client import command, wait_for


@pytest.fixture
def group():
    """A cgroup such as an administrator may give to a login, and a controller that it may delegate."""
    above = Path(delegated_cgroup() or "/nowhere")
    assert above.exists(), "this test makes a cgroup (v2), which this machine must allow"
    before = (above / "cgroup.subtree_control").read_text().split()
    controllers = (above / "cgroup.controllers").read_text().split()
    [controller] = [each for each in controllers if try_write(above / "cgroup.subtree_control", "+" + each)][
        :1
    ]
    group = above / f"trainyard-test-{os.getpid()}"
    group.mkdir()
    yield group, controller
    for directory in (*group.glob("*/"), group):
        wait_for(lambda directory=directory: not (directory / "cgroup.procs").read_text(), "it to be empty")
        directory.rmdir()
    if controller not in before:
        try_write(above / "cgroup.subtree_control", "-" + controller)


@pytest.mark.needs_cgroups
def test_processes_in_the_way_move_into_a_child_of_the_same_cgroup(group):
    group, controller = group
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    try:
        for sleeper in sleepers:
            assert try_write(group / "cgroup.procs", str(sleeper.pid))
        assert not try_write(group / "cgroup.subtree_control", "+" + controller), "they are in the way"
        assert delegate_controller(group, controller) and delegate_controller(group, controller), (
            "and again there is nothing to do"
        )
        assert (group / "cgroup.procs").read_text() == ""
        moved = {int(pid) for pid in (group / LOGIN / "cgroup.procs").read_text().split()}
        assert moved == {sleeper.pid for sleeper in sleepers}
        run = group / "run"
        run.mkdir()
        assert controller in (run / "cgroup.controllers").read_text().split()
        assert not delegate_controller(group, "no-such-controller")
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


@pytest.mark.needs_cgroups
def test_a_login_in_a_child_cgroup_still_finds_the_cgroup_above(group):
    group, controller = group
    program = (
        f"import sys; sys.path[:0] = {[str(Path.cwd())]}; from agents.runner.runs import containment as c\n"
    )
    program += (
        "sys.stdin.readline(); print(c.delegate_controller(sys.argv[1], sys.argv[2]), c.delegated_cgroup())"
    )
    login = subprocess.Popen(
        ["python3", "-c", program, group, controller],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert try_write(group / "cgroup.procs", str(login.pid))
    said, _ = login.communicate("go\n", timeout=60)
    assert said == f"True {group}\n"


@pytest.mark.needs_cgroups
def test_cgroups_left_by_a_closed_run_are_removed_and_no_others(console, host):
    """Left by a kernel that called it busy, or by an older runner: removed at the next connection, or by forget."""
    for run in ("r1", "r2"):
        console.start(run, ["true"])
        console.closed(run)
    console.start("open", ["sleep", "600"])
    kept = [Path(console.running("open")["cgroup"])]
    other = host.connect()
    other.hello("other")
    other.start("r1", ["sleep", "600"])
    kept.append(Path(other.running("r1")["cgroup"]))
    left = [Path(str(cgroup_path(run, host.facts(run)["mark"]))) for run in ("r1", "r2")]
    # A run between making its cgroup and joining it; and a probe that is still running.
    kept += [Path(str(cgroup_path("r1", "0" * 16))), Path(str(cgroup_path(f"probe-{os.getpid()}", "")))]
    try:
        for group in (*left, *kept[2:]):
            group.mkdir()
        console.say("forget", run="r2")
        wait_for(lambda: not left[1].exists(), "the forgotten run's cgroup to go")
        assert left[0].exists()
        host.connect().hello()
        wait_for(lambda: not left[0].exists(), "the closed run's cgroup to go")
        assert all(group.exists() for group in kept)
    finally:
        for group in kept[2:]:
            group.rmdir()


@pytest.mark.needs_cgroups
@pytest.mark.parametrize("reboot", [False, True])
def test_a_run_whose_keepers_were_killed_leaves_no_cgroup(console, host, reboot):
    """Removed by the process that closes it: the mender, or serve after a boot (a container that keeps cgroups)."""
    console.start("r1", command("import os, time", "os.fork()", "print('up')", "time.sleep(600)"))
    console.text("r1", "up")
    facts = console.running("r1")
    group = Path(facts["cgroup"])
    console.drop()
    for keeper in host.keepers("r1"):
        os.kill(keeper, signal.SIGKILL)
    if reboot:
        (group / "cgroup.kill").write_text("1")
        wait_for(lambda: "populated 0" in (group / "cgroup.events").read_text(), "all to be dead")
        stored = host.run_dir("r1") / "facts.json"
        stored.write_text(json.dumps({**json.loads(stored.read_text()), "boot_id": "an-earlier-boot"}))
    again = host.connect()
    again.hello()
    assert again.closed("r1")["why"] == ("reboot" if reboot else "lost")
    assert not group.exists()


@pytest.mark.needs_cgroups
def test_a_killed_probe_leaves_its_cgroup_for_an_hour(monkeypatch):
    group = Path(str(cgroup_path(f"probe-{os.getpid()}", "")))
    group.mkdir()
    try:
        cleanup.sweep_cgroups([])
        assert group.exists()
        now = time.time() + PROBE_KEPT_S + 1
        monkeypatch.setattr(time, "time", lambda: now)
        cleanup.sweep_cgroups([])
        assert not group.exists()
    finally:
        remove_cgroup(str(group))


# -- the cgroup itself: a process in it that no ancestry and no mark leads to --


@pytest.fixture
def joined():
    """Start a process that is no descendant of a keeper and joins a run's cgroup, as one that a service of the login
    started for the run."""
    started = []

    def join(group, *lines):
        program = "\n".join(
            ("import signal, sys, time", *lines, "print('up', flush=True)", "time.sleep(600)")
        )
        started.append(subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "up\n"
        assert try_write(group / "cgroup.procs", str(started[-1].pid))
        return started[-1]

    yield join
    for stranger in started:
        stranger.kill()
        stranger.wait()
        stranger.stdout.close()


@pytest.fixture
def own_group():
    """A cgroup as a run gets it."""
    group = Path(str(cgroup_path(f"test-{os.getpid()}", os.urandom(8).hex())))
    group.mkdir()
    yield group
    try_write(group / "cgroup.kill", "1")
    assert remove_cgroup(str(group), 10)


def closing(tmp_path, group):
    """A run's life at its end: the kernel knows no child of it, and only its cgroup may hold something."""
    life = RunLifecycle(Home("dep"), "r1")
    life.directory = str(tmp_path)
    life.facts.update(cgroup=str(group), mark="")
    life.no_children = True
    life.parent = os.getppid()
    return life


@pytest.mark.needs_cgroups
def test_a_stop_asks_every_process_of_the_cgroup_to_end(console, joined):
    # When the replica ends, all that is left of its run is killed: it stays until the stranger was asked.
    console.start(
        "r1",
        command(
            "import signal", "signal.signal(15, lambda *a: 0)", "print('up')", "while True: signal.pause()"
        ),
    )
    console.text("r1", "up")
    running = console.running("r1")
    stranger = joined(
        Path(running["cgroup"]), "signal.signal(15, lambda *a: (print('asked', flush=True), sys.exit(5)))"
    )
    console.stop("r1", 30)
    assert stranger.stdout.readline() == "asked\n"
    os.kill(running["pid"], signal.SIGKILL)
    console.closed("r1")


@pytest.mark.needs_cgroups
def test_a_run_is_not_proved_closed_while_its_cgroup_holds_a_process(own_group, tmp_path, joined):
    life = closing(tmp_path, own_group)
    assert life.is_empty()
    stranger = joined(own_group)
    assert not life.is_empty()
    stranger.kill()
    stranger.wait()
    wait_for(life.is_empty, "the cgroup to be empty")


@pytest.mark.needs_cgroups
def test_the_kernel_kills_what_no_search_finds(own_group, tmp_path, monkeypatch, joined):
    """A program that forks faster than a search: it is not found, and ends all the same."""
    life = closing(tmp_path, own_group)
    stranger = joined(own_group)
    reaper = threading.Thread(target=stranger.wait, daemon=True)
    reaper.start()
    monkeypatch.setattr(run_lifecycle, "freeze_and_kill", lambda find: [])
    monkeypatch.setattr(life, "reap", lambda: None)
    closed = []
    monkeypatch.setattr(life, "close", lambda: closed.append(True))
    ended = threading.Thread(target=life.finish, daemon=True)
    ended.start()
    ended.join(20)
    reaper.join(20)  # meanwhile nobody else is told how it ended
    assert closed and stranger.returncode == -signal.SIGKILL


@pytest.mark.needs_cgroups
def test_a_process_may_begin_in_its_cgroup_and_without_one_it_is_forked_as_ever(tmp_path):
    path = cgroup_path(f"begins-{os.getpid()}", "")
    os.mkdir(path)
    try:
        assert cgroup_and_place(path) == (path, True)
        assert cgroup_and_place(str(tmp_path)) == (None, False), "no cgroup"
        assert cgroup_and_place(None) == (None, False)
    finally:
        assert remove_cgroup(path, patience_s=5)


def cgroup_and_place(path):
    """What `fork_into` says of its child, and whether the child's first program is in the cgroup of that name."""
    read, write = os.pipe()
    pid, began_in = fork_into(path)
    if pid == 0:
        os.dup2(write, 1)
        os.execv("/bin/cat", ["cat", "/proc/self/cgroup"])
    os.close(write)
    with os.fdopen(read) as said:
        groups = said.read().split()
    assert os.waitpid(pid, 0) == (pid, 0)
    return began_in, any(group.endswith("/" + os.path.basename(path or "nowhere")) for group in groups)
