"""Whichever process is killed, the run goes on or is closed truthfully: its true exit, or "unknown", never a second
start."""

from __future__ import annotations

import os
import signal
import time

import pytest

from agents.runner.processes import all_processes, descendants, read_process
from agents.runner.runs.containment import cgroup_path
from agents.runner.runs.facts import load_facts, save_facts
from tests.unit.agents.runner.engines_in_turn import engines_in_turn
from tests.unit.agents.runner.protocol_client import command, wait_for
from tests.unit.agents.runner.test_keepers import free_keeper

# Writes a line at each start, then exits with 7 once a file tells it to.
PATIENT = command(
    "import os, time, signal, sys",
    "open('ledger', 'a').write('start\\n')",
    "signal.signal(15, lambda *a: sys.exit(9))",
    "print('up')",
    "while not os.path.exists('go'): time.sleep(0.01)",
    "print('bye')",
    "sys.exit(7)",
)


def ledger(host, run="r1"):
    """How often the command was executed."""
    path = host.run_dir(run) / "work" / "ledger"
    return path.read_text().count("start") if path.exists() else 0


def go(host, run="r1"):
    (host.run_dir(run) / "work" / "go").touch()


@pytest.mark.usefixtures("each_runtime")
@engines_in_turn(["victim"], [("outer",), ("inner",), ("serve",)])
def test_one_kill_9_anywhere_still_gives_the_true_exit(console, host, victim):
    console.start("r1", PATIENT, gpus=["GPU-a"])
    console.text("r1", "up")
    keepers = host.keepers("r1")
    assert len(keepers) == 2
    pid = console.process.pid if victim == "serve" else keepers[victim == "inner"]
    os.kill(pid, signal.SIGKILL)
    if victim == "serve":
        console = host.connect()
        console.hello()
        console.say("pull", run="r1", **{"from": 0})
    else:
        wait_for(lambda: len(host.keepers("r1")) == 1, "one keeper")
    console.start("r2", ["true"], gpus=["GPU-a"])
    assert console.closed("r2")["refusal"] == "gpu_busy"
    go(host)
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["why"], ledger(host)) == (7, "exit", 1)
    assert console.ended_log("r1")[0] == b"up\nbye\n"


@pytest.mark.usefixtures("each_runtime")
def test_a_surviving_keeper_still_stops_and_times_out(console, host):
    for run, change in (("r1", {}), ("r2", {"timeout_s": 1.5})):
        console.start(run, PATIENT, **change)
        console.text(run, "up")
        os.kill(host.keepers(run)[1], signal.SIGKILL)
    console.stop("r1")
    facts = [console.closed("r1"), console.closed("r2")]
    assert [(f["why"], f["exit_code"]) for f in facts] == [("stop", 9), ("timeout", 9)]


def test_both_keepers_killed_is_lost_with_nothing_left(console, host):
    # The child drops the run's mark, so it is found only by its marked parent.
    console.start("r1", command("import os, subprocess, time", "subprocess.Popen(['sleep', '600'], env={})",
                                "print('up')", "time.sleep(600)"), gpus=["GPU-a"])  # fmt: skip
    console.text("r1", "up")
    pid = console.facts["r1"]["pid"] if console.facts["r1"]["pid"] else console.running("r1")["pid"]
    tree = descendants({pid}, all_processes()) | {pid}
    assert len(tree) == 2
    for keeper in host.keepers("r1"):
        os.kill(keeper, signal.SIGKILL)
    facts = console.closed("r1")
    assert (facts["why"], facts["exit_code"], facts["exit_signal"]) == ("lost", None, None)
    assert not any((p := read_process(pid)) and p.state != "Z" for pid in tree)
    console.start("r2", ["true"], gpus=["GPU-a"])
    assert console.closed("r2")["exit_code"] == 0


def test_an_exit_written_before_both_keepers_died_is_kept(console, host):
    host.arm("before_closed", "stop")
    console.start("r1", ["sh", "-c", "exit 3"])
    assert console.phase("r1", "ended")["exit_code"] == 3
    wait_for(lambda: host.fired("before_closed"), "the stopped keeper")
    for keeper in host.keepers("r1"):
        os.kill(keeper, signal.SIGKILL)
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["why"]) == (3, "exit")


# What must be true after a kill at each point: (why, exit code, never started, times executed).
LOST, DONE, TRUE_EXIT = ("lost", None, True, 0), ("exit", 7, False, 1), ("exit", 7, False, 1)
POINTS = {
    "after_mkdir": LOST,
    "after_lock": LOST,
    "before_reply": DONE,
    "keeper_born": LOST,
    # The claim is written, but from here on no living process knows how far it had come.
    "after_gpu_lock": ("lost", None, None, 0),
    "after_order": ("lost", None, None, 0),
    "before_gate": LOST,
    "after_gate": TRUE_EXIT,
    "before_started": TRUE_EXIT,
    "after_started": TRUE_EXIT,
    "before_ended": TRUE_EXIT,
    "before_reap": TRUE_EXIT,
    "before_closed": TRUE_EXIT,
    "after_closed": TRUE_EXIT,
}
# At these the program must have ended. At the others it waits: one that is over at once is perhaps never seen running.
AT_THE_END = ("before_ended", "before_reap", "before_closed", "after_closed")


@pytest.mark.usefixtures("each_runtime")
@engines_in_turn(["point"], [(point,) for point in POINTS])
def test_a_kill_at_any_point_of_a_start_is_reported_truthfully(console, host, point):
    is_reported_truthfully(console, host, point)


# Where a keeper that was handed the run differs from a fork of serve, and at both ends of its life.
OF_KEEPERS = (
    "keeper_born",
    "after_gpu_lock",
    "after_order",
    "before_gate",
    "after_gate",
    "before_reap",
    "after_closed",
)


@pytest.mark.parametrize("point", OF_KEEPERS)
def test_the_same_of_a_keeper_that_kept_another_run_before(console, host, point):
    console.start("r0", ["true"], gpus=["GPU-a"])
    console.closed("r0")
    keeper = free_keeper(host)
    is_reported_truthfully(console, host, point, lambda: host.keepers("r1")[:1] in ([keeper], []))


def is_reported_truthfully(console, host, point, is_kept=lambda: True):
    host.arm(point)
    order = {"gpus": ["GPU-a"], "env": {"TOKEN": "secret"}}
    console.start("r1", PATIENT, **order)
    alive = True
    until = time.monotonic() + 90
    while not host.fired(point) and time.monotonic() < until:
        if point in AT_THE_END and ledger(host):
            go(host)
        if alive:
            try:
                console.read(0.02)
            except EOFError:
                alive = False
        assert is_kept()
    assert host.fired(point)
    # The console does what it does after every lost connection: connect again, send its orders again.
    again = host.connect()
    again.hello()
    again.start("r1", PATIENT, **order)
    wait_for(lambda: again.read(0.02) or ledger(host) or again.facts.get("r1", {}).get("phase") == "closed")
    if ledger(host):
        go(host)
    facts = again.closed("r1")
    found = (facts["why"], facts["exit_code"], facts["never_started"], ledger(host))
    assert found == POINTS[point]
    assert facts["log"]["size"] == len(again.ended_log("r1")[0])
    again.start("r2", ["true"], gpus=["GPU-a"])
    assert again.closed("r2")["exit_code"] == 0
    wait_for(lambda: not host.keepers("r1"), "no keeper left")
    group = cgroup_path("r1", facts["mark"])
    assert not (group and os.path.isdir(group))
    assert not [p for p in host.run_dir("r1").iterdir() if p.name in ("order.json", "control", "spare.0")]


def test_a_stop_is_finished_though_a_keeper_dies_between_sigterm_and_sigkill(console, host):
    host.arm("between_term_and_kill")
    console.start("r1", PATIENT)
    console.text("r1", "up")
    console.stop("r1", 30)
    facts = console.closed("r1")
    assert (facts["why"], facts["exit_code"]) == ("stop", 9) and host.fired("between_term_and_kill")


@pytest.mark.parametrize("point", ["after_tombstone", "before_delete"])
def test_a_serve_killed_while_closing_is_asked_again(console, host, point):
    if point == "before_delete":
        console.start("r1", ["true"])
        console.closed("r1")
    host.arm(point)
    console.say(*(("stop",) if point == "after_tombstone" else ("forget",)), run="r1", grace_s=0)
    console.process.wait(30)
    again = host.connect()
    again.hello()
    again.start("r1", PATIENT, pull=False)
    again.stop("r1")
    again.closed("r1")
    again.say("forget", run="r1")
    again.hear("forgotten")
    assert not host.run_dir("r1").exists() and ledger(host) == 0


def test_a_reboot_closes_what_ran_and_kills_nothing(console, host):
    console.start("r1", PATIENT)
    console.text("r1", "up")
    console.start("r2", ["sh", "-c", "exit 4"])
    console.closed("r2")
    console.drop()
    for keeper in host.keepers("r1"):
        os.kill(keeper, signal.SIGKILL)
    for run, phase in (("r1", "running"), ("r2", "ended")):
        facts = host.facts(run)
        facts.update(boot_id="another-boot", phase=phase, from_a_newer_version={"kept": [1]})
        save_facts(str(host.run_dir(run)), facts)
    # A process with the old run's pid, and even its mark, does not belong to the run of the earlier boot.
    pid, ticks = facts["pid"], read_process(host.facts("r1")["pid"]).ticks
    again = host.connect()
    again.hello()
    lost, kept = again.closed("r1"), again.closed("r2")
    assert (lost["why"], lost["exit_code"], lost["exit_signal"]) == ("reboot", None, None)
    assert (kept["why"], kept["exit_code"]) == ("exit", 4)
    assert lost["from_a_newer_version"] == {"kept": [1]}
    assert read_process(host.facts("r1")["pid"]).ticks == ticks and pid


def test_the_newest_connection_takes_over_and_the_older_one_leaves(console, host):
    console.start("r1", PATIENT)
    console.text("r1", "up")
    newer = host.connect()
    newer.hello()
    assert "newer connection" in console.hear("error")["message"]
    assert console.process.wait(30) == 0
    newer.say("pull", run="r1", **{"from": 3})
    newer.logs["r1"] = bytearray(b"up\n")
    go(host)
    assert newer.closed("r1")["exit_code"] == 7
    assert newer.ended_log("r1")[0] == b"up\nbye\n"


def test_a_serve_that_was_suspended_during_the_takeover_starts_nothing(console, host):
    host.arm("before_reply", "stop")
    console.start("r1", PATIENT)
    wait_for(lambda: host.fired("before_reply"), "a stopped serve")
    newer = host.connect()
    newer.hello()
    console.start("late", PATIENT, pull=False)
    os.kill(console.process.pid, signal.SIGCONT)
    assert console.process.wait(30) == 0
    assert not host.run_dir("late").exists()
    newer.stop("r1")
    newer.closed("r1")
    assert ledger(host) == 1


def test_runs_go_on_when_the_connection_ends(console, host):
    console.start("r1", PATIENT)
    console.text("r1", "up")
    console.drop()
    assert console.process.returncode == 0
    go(host)
    facts = wait_for(lambda: (f := host.facts("r1"))["phase"] == "closed" and f, "the end")
    assert facts["exit_code"] == 7
    again = host.connect()
    again.hello()
    assert again.facts["r1"] == dict(facts)


def test_facts_of_any_version_are_read(tmp_path):
    (tmp_path / "facts.json").write_text('{"phase": "running", "schema": 99, "new": {"a": 1}, "log": null}')
    facts = load_facts(str(tmp_path))
    save_facts(str(tmp_path), facts, durable=True)
    again = load_facts(str(tmp_path))
    assert (again["schema"], again["new"], again["log"]["size"]) == (99, {"a": 1}, 0)
    for broken in ("", "{", "[]", '{"phase": 3}', "\0" * 50):
        (tmp_path / "facts.json").write_text(broken)
        assert load_facts(str(tmp_path)) is None
