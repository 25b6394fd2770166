"""Processes of ours, or of the engine, are killed: the container goes on, or nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from agents.runner.processes import all_processes, read_process
from agents.runner.runtimes.containers import Container
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.runtimes.container_runs import (
    client_of,
    connect,
    follower_of,
    is_alive,
    pid_in,
    start,
)

VICTIMS = {
    "podman": ["client", "conmon", "inner", "outer", "serve"],
    "docker": ["client", "follower", "inner", "outer", "serve"],
}


@pytest.mark.parametrize("number", range(5))
def test_one_process_of_ours_or_of_the_engine_is_killed_and_the_program_goes_on(
    host, console, engine, number
):
    victim = VICTIMS[engine.kind][number]
    start(
        console, "r1", 'echo up; while [ ! -e "$TRAINYARD_WORK/go" ]; do sleep 0.05; done; echo bye; exit 9'
    )
    console.text("r1", "up")
    facts = console.running("r1")
    pid = victims_of(host, console, facts)[victim]
    os.kill(pid, signal.SIGKILL)
    if victim == "serve":
        console.process.wait()
        console = connect(host, engine, epoch=2)
        console.say("pull", run="r1", **{"from": 0, "raw": False})
    wait_for(lambda: not is_alive(pid), "its end")
    (Path(host.facts("r1")["work"]) / "go").touch()
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["why"]) == (9, "exit"), facts
    log = console.ended_log("r1")[0]
    # The engine says into its own output that it misses its monitor.
    assert log == b"up\nbye\n" or (victim == "conmon" and log.startswith(b"up\n") and b"\nbye\n" in log)
    wait_for(lambda: not engine.containers(), "no container to be left")


def victims_of(host, console, facts):
    outer, inner = host.keepers("r1")
    found = {"outer": outer, "inner": inner, "serve": console.process.pid, "client": client_of(facts)}
    if facts["runtime"]["kind"] == "podman":
        return {**found, "conmon": pid_in(host, "r1", "conmon.pid")}
    return {**found, "follower": follower_of(facts)}


def test_all_keepers_and_the_engine_are_killed_and_nothing_is_left(host, console, engine):
    start(console, "r1", "echo up; trap '' TERM; while true; do sleep 0.1; done")
    console.text("r1", "up")
    facts = console.running("r1")
    found = victims_of(host, console, facts)
    del found["serve"]
    for pid in found.values():
        os.kill(pid, signal.SIGKILL)
    closed = console.closed("r1")
    assert closed["why"] == "lost" and not is_alive(facts["pid"])


def test_it_does_not_start_twice(host, console, engine):
    start(console, "r1", 'echo once >> "$TRAINYARD_WORK/starts"')
    facts = console.closed("r1")
    start(console, "r1", 'echo once >> "$TRAINYARD_WORK/starts"', pull=False)
    console.hear("fact", lambda m: m["run"] == "r1")
    assert (Path(facts["work"]) / "starts").read_text() == "once\n"


def test_a_claim_whose_keeper_died_while_the_container_was_made_leaves_none(host, console, engine):
    start(console, "r1", "exec sleep 600")
    wait_for(lambda: (host.facts("r1") or {}).get("runtime"), "its claim")
    wait_for(
        lambda: engine.containers() or (Path(host.facts("r1")["runtime"]["place"]) / "conmon.pid").exists(),
        "the engine to begin",
    )
    for pid in host.keepers("r1"):
        os.kill(pid, signal.SIGKILL)
    console.closed("r1")
    wait_for(lambda: not engine.containers(), "no container to be left")


def test_the_container_is_known_on_disk_before_the_engine_begins(host, console, engine):
    host.arm("before_gate", "stop")
    start(console, "r1", "exec sleep 600")
    wait_for(lambda: host.fired("before_gate"), "the inner keeper at the gate")
    known = host.facts("r1")["runtime"]
    for pid in host.keepers("r1"):
        os.kill(pid, signal.SIGKILL)
    console.closed("r1")
    assert known.get("name", "").startswith("trainyard-r1-")


def test_a_number_that_another_process_has_by_now_is_left_alone(tmp_path):
    other = subprocess.Popen(["sleep", "60"])
    try:
        (tmp_path / "container.pid").write_text(str(other.pid))
        known = {"program": "podman", "name": "x", "place": str(tmp_path)}
        container = Container(str(tmp_path), {"runtime": known, "pid": other.pid, "ticks": 1})
        assert not container.is_alive() and not container.programs(all_processes())
        container.kill()
        assert other.poll() is None
        ours = read_process(other.pid)
        assert Container(str(tmp_path), {"runtime": known, "pid": ours.pid, "ticks": ours.ticks}).is_alive()
    finally:
        other.kill()
        other.wait()
