"""Controllers of cgroup v2 are handed down to runs although this login itself is in the way."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agents.runner.containment import LOGIN, delegated_cgroup, hand_down, try_write
from tests.runner.console import wait_for


@pytest.fixture
def group():
    """A cgroup such as an administrator may give to a login, and a controller that it may hand down."""
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
def test_whoever_is_in_the_way_moves_into_a_child_of_the_same_cgroup(group):
    group, controller = group
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    try:
        for sleeper in sleepers:
            assert try_write(group / "cgroup.procs", str(sleeper.pid))
        assert not try_write(group / "cgroup.subtree_control", "+" + controller), "they are in the way"
        assert hand_down(group, controller) and hand_down(group, controller), (
            "and again there is nothing to do"
        )
        assert (group / "cgroup.procs").read_text() == ""
        moved = {int(pid) for pid in (group / LOGIN / "cgroup.procs").read_text().split()}
        assert moved == {sleeper.pid for sleeper in sleepers}
        run = group / "run"
        run.mkdir()
        assert controller in (run / "cgroup.controllers").read_text().split()
        assert not hand_down(group, "no-such-controller")
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


@pytest.mark.needs_cgroups
def test_a_login_that_has_moved_down_is_still_in_the_cgroup_above(group):
    group, controller = group
    program = f"import sys; sys.path[:0] = {[str(Path.cwd())]}; from agents.runner import containment as c\n"
    program += "sys.stdin.readline(); print(c.hand_down(sys.argv[1], sys.argv[2]), c.delegated_cgroup())"
    login = subprocess.Popen(
        ["python3", "-c", program, group, controller],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert try_write(group / "cgroup.procs", str(login.pid))
    said, _ = login.communicate("go\n", timeout=60)
    assert said == f"True {group}\n"
