"""What a runner meets on a damaged host: files that a replica has spoilt, disks that do not answer."""

from __future__ import annotations

import json
import os
import struct
import time

import pytest

from tests.harness.hanging_file_system import HangingDisk
from tests.unit.agents.runner.protocol_client import command, wait_for

NONSENSE = [
    b"",
    b"[]",
    b"{",
    b"7",
    b"null",
    b"\xff\x00",
    b'{"holes": 7, "shift": [], "generation": {}, "shipped": -1}',
]
NONSENSE += [b'{"holes": [7, [1], ["a", "b"], [9, 3]], "shift": 1e400, "generation": NaN, "shipped": true}']
NONSENSE += [
    b'{"holes": [[-5, 3]], "shift": 99999999999999999999, "generation": -1, "shipped": 99999999999999}'
]
NONSENSE += [struct.pack("<QdQd", 2**63, float("nan"), 5, float("inf")) + b"tail", b"[" * 100_000]
TALKER = command(
    "import time, sys",
    "for n in range(100000):",
    "    print('line', n, flush=True)",
    "    time.sleep(0.01)",
)


def facts_only(console):
    """A console that keeps all messages, but does not check that logs are gapless: here they cannot be."""

    def take(message, payload):
        for fact in (
            message["runs"] if message["t"] == "inventory" else [message] if message["t"] == "fact" else ()
        ):
            console.facts[fact["run"]] = fact
        console.heard.append(message)

    console.take = take
    return console


@pytest.mark.parametrize("name", ["log.cut", "log.sent", "log.marks", "log.blocks", "stop.json", "control"])
def test_nonsense_in_the_files_of_a_run_loses_its_state_and_ends_no_runner(host, console, name):
    """A replica may write into its own run's directory. Whatever it writes there, serve and the other runs go on."""
    facts_only(console)
    for number, nonsense in enumerate(NONSENSE):
        console.start(f"r{number}", TALKER)
        console.hear("log", lambda m, run=f"r{number}": m["run"] == run)
        path = host.run_dir(f"r{number}") / name
        if name == "control":
            path.write_bytes(nonsense[:4000])
        else:
            path.with_suffix(".x").write_bytes(nonsense)
            path.with_suffix(".x").rename(path)
        console.say("pull", run=f"r{number}", **{"from": 0})
    console.say("ping", id=1)
    console.hear("pong")
    console.drop()
    again = facts_only(host.connect())
    again.hello()
    for number in range(len(NONSENSE)):
        again.say("pull", run=f"r{number}", **{"from": 0})
    again.say("ping", id=2)
    assert again.hear("pong")["id"] == 2
    for number in range(len(NONSENSE)):
        again.stop(f"r{number}", 0)
    for number in range(len(NONSENSE)):
        assert again.closed(f"r{number}")["why"] in ("stop", "lost")


@pytest.mark.parametrize(
    "spoil",
    [
        {"log": {"size": "many", "final": 1}, "pid": "x", "mark": 7, "survivors": 3, "cgroup": 7, "busy": []},
        {"log": 7, "started_at": float("nan")},
        {"extra": "x" * 100_000},
        {"message": "x" * 100_000, "mono_started": "soon", "boot_id": 7},
    ],
)
def test_nonsense_in_the_facts_of_a_run_hides_no_other_run(host, console, spoil):
    console.start("r1", TALKER)
    console.start("r2", TALKER)
    facts = {**console.running("r1"), **spoil}
    console.text("r2", "line")
    (host.run_dir("r1") / "facts.new").write_text(json.dumps(facts))
    (host.run_dir("r1") / "facts.new").rename(host.run_dir("r1") / "facts.json")
    console.drop()
    again = host.connect()
    again.hello()
    assert {"r1", "r2"} <= set(again.facts) and again.facts["r2"]["phase"] == "running"
    again.stop("r1", 0)
    again.stop("r2", 0)
    assert again.closed("r2") and again.closed("r1")


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(host, console):
    facts_only(console)
    console.start("r1", TALKER)
    console.hear("log")
    for name in ("facts.json", "log.sent", "log.marks", "log.cut", "stop.json"):
        path = host.run_dir("r1") / name
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    console.say("pull", run="r1", **{"from": 0})
    console.drop()
    for name in ("epoch", "mark", "owner", "forgotten"):
        path = host.run_dir("r1").parents[1] / name
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    again = host.connect()
    again.hello()
    again.say("ping", id=3)
    assert again.hear("pong")["id"] == 3
    for path in host.run_dir("r1").iterdir():
        path.unlink() if path.is_fifo() else None


def test_drafts_of_runners_that_nobody_writes_any_more_are_removed(host):
    programs = host.home / ".trainyard" / "bin"
    programs.mkdir(parents=True)
    for name, age_s in ((".put-old", 7200), (".put-new", 60), ("kept.py", 7200)):
        (programs / name).write_text("x")
        os.utime(programs / name, (time.time() - age_s,) * 2)
    host.connect().hello()
    wait_for(lambda: not (programs / ".put-old").exists(), "the draft to be removed")
    assert sorted(path.name for path in programs.iterdir()) == [".put-new", "kept.py"]


@pytest.mark.needs_namespaces  # only root can mount a disk that hangs
@pytest.mark.parametrize("where", ["work", "work/k1"])
def test_the_runner_answers_while_the_work_directory_hangs(host, where):
    """As over a dead NFS server: other runs start and stop, and a run that needs the directory says what is wrong."""
    console = host.connect(TRAINYARD_STORAGE_S="2")
    console.hello()
    console.start("r0", TALKER)
    console.running("r0")
    place = host.home / ".trainyard" / "dep" / where
    place.mkdir(exist_ok=True)
    with HangingDisk(place) as disk:
        disk.hang()
        console.start("r1", TALKER, work_key="k1")
        console.say("forget", run="r7")
        console.drop()
        again = host.connect()
        again.hello()
        again.say("ping", id=5)
        again.hear("pong")
        assert again.facts["r0"]["phase"] == "running" and again.facts["r1"]["phase"] in ("claimed", "closed")
        again.start("r2", TALKER)
        assert again.running("r2")
        refused = again.closed("r1")
        assert (refused["refusal"], refused["never_started"]) == ("storage", True)
        assert "does not answer" in refused["message"]
        again.stop("r0", 0)
        assert again.closed("r0")["why"] == "stop"
