"""Programs that bring images: what ends them, and how much of what they say is kept."""

from __future__ import annotations

import os

import pytest

from agents.runner.preparations import programs_output, pull_guard
from agents.runner.preparations.images import places_of
from agents.runner.preparations.programs_output import run_on_terminal
from agents.runner.preparations.pull_guard import Guard
from agents.runner.preparations.report import HOST, Failed, Report
from tests.harness.wait_and_processes import process_alive, wait_for

# An engine that throws away what it has begun when it is asked to end, and whose work is done by a child.
PULL = """
cd "$0"
trap 'rm layer; exit 1' TERM
echo x > layer
sh -c 'trap "" TERM; echo $$ > child; n=0; while [ $n -lt 600 ]; do n=$((n+1)); sleep 0.05; done' &
n=0
while [ $n -lt 300 ]; do n=$((n+1)); echo "another line"; sleep 0.05; done
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(programs_output, "LOOK_S", 0.2)
    (tmp_path / "report").mkdir()

    def run(script, guard=None):
        report = Report(str(tmp_path / "report"))
        guard = guard or Guard(lambda: [str(tmp_path)])
        return run_on_terminal(["sh", "-c", script, str(tmp_path)], dict(os.environ), report, guard)

    return run


def is_gone(tmp_path):
    return not process_alive(int((tmp_path / "child").read_text()))


def test_a_pull_is_stopped_before_the_disk_is_full(run, tmp_path, monkeypatch):
    """Jobs of the host write there, too."""
    left = iter([20 << 20, 20 << 20, 7 << 20])
    monkeypatch.setattr(pull_guard, "kept_free", lambda place: 16 << 20)
    monkeypatch.setattr(pull_guard, "free_bytes", lambda place: next(left))
    with pytest.raises(Failed, match=r"nearly full \(7 MB are left at .*jobs that run here") as failed:
        run(PULL)
    assert failed.value.fault == HOST
    assert not (tmp_path / "layer").exists(), "it has thrown away what it had begun"
    wait_for(lambda: is_gone(tmp_path), "its child to be gone")


def test_a_pull_that_goes_on_for_ever_is_stopped(run, tmp_path):
    with pytest.raises(Failed, match="was not finished within 0 hours"):
        run(PULL, Guard(lambda: [str(tmp_path)], most_s=0.0))
    wait_for(lambda: is_gone(tmp_path), "its child to be gone")


def test_a_disk_that_cannot_be_looked_at_ends_nothing(run):
    assert run("echo begun; sleep 0.5; exit 3", Guard(lambda: ["/nonexistent/of/docker"])) == (3, "begun\n")


def test_the_engine_is_not_asked_for_its_disk_by_a_pull_that_brings_nothing(run):
    asked = []
    assert run("exit 0", Guard(lambda: asked.append(1) or []))[0] == 0
    assert not asked


@pytest.mark.parametrize(
    "script",
    [
        "i=0; while [ $i -lt 12000 ]; do i=$((i+1)); echo progress of layer number $i; done; echo the end",
        "head -c 3000000 /dev/zero | tr '\\\\0' x; echo; echo the end",
    ],
)
def test_of_endless_output_the_end_is_kept(run, script):
    status, text = run(script)
    assert status == 0 and text.endswith("the end\n") and len(text) <= programs_output.MAX_KEPT


def test_the_disk_of_the_engine_and_that_of_the_login_are_looked_at(tmp_path):
    program = tmp_path / "podman"
    program.write_text('#!/bin/sh\n[ "$3" = "{{.Store.GraphRoot}}" ] && echo /srv/containers\n')
    program.chmod(0o755)
    home = os.path.expanduser("~")
    assert places_of("podman", str(program), dict(os.environ)) == [home, "/srv/containers"]
    assert places_of("docker", str(program), dict(os.environ)) == [home]
