"""A keeper that is done with its run takes the next one: with nothing of the run before, and only while serve needs
it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from agents.runner.processes import read_process
from agents.runner.runs.keepers import FREE_S
from tests.unit.agents.runner.protocol_client import command, wait_for

WAITING = command("import os, time", "print('up')", "while not os.path.exists('go'): time.sleep(0.01)")


def free_keepers(host):
    return [pid for pid in host.processes() if is_free(pid)]


def is_free(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0] == b"trainyard-keeper"
    except OSError:
        return False


def free_keeper(host):
    """The outer one of a pair that has told serve that it is free: both wait for the next run."""
    wait_for(lambda: [read_process(pid).state for pid in free_keepers(host)] == ["S", "S"], "a free pair")
    outer, inner = sorted(free_keepers(host), key=lambda pid: read_process(pid).parent in free_keepers(host))
    assert read_process(inner).parent == outer
    return outer


def finished(console, host, run):
    (host.run_dir(run) / "work" / "go").touch()
    return console.closed(run)


def opened(pid):
    return [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]


def test_a_keeper_takes_the_next_run_with_nothing_of_the_one_before(console, host):
    console.start("r1", ["sh", "-c", "echo one; exit 3"], gpus=["GPU-a"], env={"A": "1"})
    assert console.closed("r1")["exit_code"] == 3
    keeper = free_keeper(host)
    assert not any("runs/r1" in path or "GPU" in path for path in opened(keeper))
    console.start("r2", command("import os, time", "print(os.environ.get('A'), 'up')",
                                "while not os.path.exists('go'): time.sleep(0.01)"))  # fmt: skip
    console.text("r2", "None up")
    outer, inner = host.keepers("r2")
    assert outer == keeper
    for pid in (outer, inner, console.running("r2")["pid"]):
        assert not any("runs/r1" in path or "GPU" in path for path in opened(pid))
    assert finished(console, host, "r2")["exit_code"] == 0
    assert (console.ended_log("r1")[0], console.ended_log("r2")[0]) == (b"one\n", b"None up\n")
    console.start("r3", ["true"], gpus=["GPU-a"])
    assert console.closed("r3")["exit_code"] == 0


def test_a_replica_holds_no_socket_to_serve(console, host):
    console.start("r1", WAITING)
    console.text("r1", "up")
    assert not any(path.startswith("socket:") for path in opened(console.running("r1")["pid"]))
    finished(console, host, "r1")


def test_runs_at_the_same_time_have_keepers_of_their_own(console, host):
    console.start("r0", ["true"])
    console.closed("r0")
    free_keeper(host)
    for run in ("r1", "r2"):
        console.start(run, WAITING)
        console.text(run, "up")
    assert not set(host.keepers("r1")) & set(host.keepers("r2"))
    assert [finished(console, host, run)["exit_code"] for run in ("r1", "r2")] == [0, 0]


@pytest.mark.parametrize("victim", ["outer", "inner"])
def test_a_free_pair_of_which_one_is_killed_ends(console, host, victim):
    console.start("r1", ["true"])
    console.closed("r1")
    outer = free_keeper(host)
    pair = free_keepers(host)
    os.kill(outer if victim == "outer" else max(set(pair) - {outer}), signal.SIGKILL)
    wait_for(lambda: not any(map(lives, pair)), "the pair's end", patience=FREE_S / 2)
    console.start("r2", ["true"])
    assert console.closed("r2")["exit_code"] == 0


def lives(pid):
    found = read_process(pid)
    return found is not None and found.state != "Z"


def test_a_keeper_that_is_killed_before_it_looks_at_the_run_has_started_nothing(console, host):
    console.start("r1", ["true"])
    console.closed("r1")
    outer = free_keeper(host)
    os.kill(outer, signal.SIGSTOP)
    console.start("r2", ["true"])
    wait_for(lambda: host.run_dir("r2").exists(), "the claim")
    os.kill(outer, signal.SIGKILL)
    facts = console.closed("r2")
    assert (facts["why"], facts["never_started"]) == ("lost", True)


def test_a_long_order_goes_to_a_fresh_keeper(console, host):
    console.start("r1", ["true"])
    console.closed("r1")
    free_keeper(host)
    console.start("r2", ["sh", "-c", "echo ${#LONG}"], env={"LONG": "x" * 100_000})
    console.closed("r2")
    assert console.ended_log("r2")[0] == b"100000\n"


def test_a_keeper_whose_inner_one_was_killed_takes_no_other_run(console, host):
    console.start("r1", WAITING)
    console.text("r1", "up")
    outer, inner = host.keepers("r1")
    os.kill(inner, signal.SIGKILL)
    assert finished(console, host, "r1")["exit_code"] == 0
    wait_for(lambda: not lives(outer))


def test_free_keepers_end_after_some_seconds_and_with_their_serve(console, host):
    console.start("r1", ["true"])
    console.closed("r1")
    free_keeper(host)
    wait_for(lambda: not free_keepers(host), "no free keeper")
    console.start("r2", ["true"])
    console.closed("r2")
    free_keeper(host)
    console.drop()
    wait_for(lambda: not host.processes(), "no process left", patience=5)


def test_a_killed_inner_keeper_frees_no_gpu_of_a_program_that_closed_what_it_inherited(console, host):
    console.start("r1", command("import os, time", "os.closerange(3, 256)", "print('up')",
                                "while not os.path.exists('go'): time.sleep(0.01)"), gpus=["GPU-a"])  # fmt: skip
    console.text("r1", "up")
    os.kill(host.keepers("r1")[1], signal.SIGKILL)
    wait_for(lambda: len(host.keepers("r1")) == 1)
    console.start("r2", ["true"], gpus=["GPU-a"])
    assert console.closed("r2")["refusal"] == "gpu_busy"
    assert finished(console, host, "r1")["exit_code"] == 0
    console.start("r3", ["true"], gpus=["GPU-a"])
    assert console.closed("r3")["exit_code"] == 0


def test_pairs_that_are_killed_while_a_start_waits_end_no_connection(console, host):
    for run in ("r0", "r1"):
        console.start(run, WAITING)
        console.text(run, "up")
    for run in ("r0", "r1"):
        finished(console, host, run)
    pairs = wait_for(lambda: len(found := free_keepers(host)) == 4 and found, "two free pairs")
    os.kill(console.process.pid, signal.SIGSTOP)
    for pid in pairs:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(map(lives, pairs)), "the pairs' end")
    console.start("r2", ["true"])
    os.kill(console.process.pid, signal.SIGCONT)
    assert console.closed("r2")["exit_code"] == 0
    console.say("ping", id=7)
    assert console.hear("pong")["id"] == 7
