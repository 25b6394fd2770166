"""Stopping: no process of a run survives, whatever it does; and no other process is ever hurt."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from agents.runner import processes
from agents.runner.home import Home
from agents.runner.processes import Process, freeze_and_kill, read_process, signal_all, signal_process
from agents.runner.runs.containment import (
    OomCounts,
    delegated_cgroup,
    judge_oom,
    memory_limits_here,
    own_oom_kills,
)
from agents.runner.runs.facts import load_facts, save_facts
from agents.runner.runs.keeper import Keeper
from tests.harness.wait_and_processes import PROMISED_S
from tests.unit.agents.runner.engines_in_turn import engines_in_turn
from tests.unit.agents.runner.protocol_client import command, wait_for

# Every hostile child touches a file again and again: a fresh file means that it still lives.
BEAT = """
def beat(name):
    while True:
        open(name, 'w').write(str(os.getpid())); time.sleep(0.05)
"""

HOSTILE = {
    "ignores TERM": "for s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\nprint('up')\nbeat('a')",
    "daemonizes without its environment": """
for n in range(4):
    if not os.fork():
        os.setsid()
        if os.fork(): os._exit(0)
        source = 'import os, time, signal\\nsignal.signal(15, signal.SIG_IGN)\\n' + BEAT + "beat('d%d')" % n
        os.execve(sys.executable, [sys.executable, '-c', source], {})
print('up')
beat('a')""",
    "forks and exits in a chain": """
if not os.fork():
    os.setsid(); signal.signal(15, signal.SIG_IGN)
    while True:
        if os.fork(): os._exit(0)
        open('chain', 'w').write('x'); time.sleep(0.001)
print('up')
beat('a')""",
    "forks a burst": """
signal.signal(15, signal.SIG_IGN)
for n in range(30):
    if not os.fork(): os.setsid(); beat('b%d' % n)
print('up')
beat('a')""",
    "is stopped": "print('up')\nos.kill(os.getpid(), signal.SIGSTOP)",
}


def hostile(body):
    return command("import os, signal, sys, time", f"BEAT = {BEAT!r}", BEAT, body)


def nothing_beats(work: Path):
    """No file in the work directory is written any more."""
    for path in work.iterdir():
        path.unlink()
    time.sleep(0.3)
    return not list(work.iterdir())


@engines_in_turn(["kind", "containment"], [*itertools.product(HOSTILE, ["cgroup", "subreaper"])])
def test_no_descendant_survives_a_stop(each_runtime, host, kind, containment):
    console = host.connect(**({"TRAINYARD_NO_CGROUP": "1"} if containment == "subreaper" else {}))
    console.hello()
    console.start("r1", hostile(HOSTILE[kind]))
    console.text("r1", "up")
    console.stop("r1", 0.2)
    facts = console.closed("r1")
    assert facts["why"] == "stop" and facts["survivors"] == []
    # An engine tells a signal as a status.
    died = (
        facts["exit_signal"]
        if each_runtime == "process"
        else (facts["exit_signal"] or facts["exit_code"] - 128)
    )
    assert died in (signal.SIGKILL, signal.SIGTERM)
    assert nothing_beats(host.run_dir("r1") / "work")


@pytest.mark.usefixtures("each_runtime")
def test_what_a_finished_replica_leaves_behind_goes_too(console, host):
    console.start(
        "r1", hostile(HOSTILE["daemonizes without its environment"].replace("beat('a')", "sys.exit(3)"))
    )
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["why"]) == (3, "exit")
    assert nothing_beats(host.run_dir("r1") / "work")


@pytest.mark.usefixtures("each_runtime")
def test_a_replica_that_ends_itself_within_its_grace_keeps_its_exit_code(console):
    source = "signal.signal(15, lambda *a: (print('saved'), sys.exit(9)))"
    console.start("r1", command("import signal, sys, time", source, "print('up')", "time.sleep(99)"))
    console.text("r1", "up\n")  # the newline is a write of its own
    console.stop("r1", 30)
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["why"]) == (9, "stop")
    assert facts["stopping_at"] <= facts["ended_at"]
    assert console.ended_log("r1")[0] == b"up\nsaved\n"


@pytest.mark.usefixtures("each_runtime")
def test_a_stop_is_told_once(console):
    """Also where the first process of a container passes it on. The second SIGTERM ends many a program at once."""
    heard = "signal.signal(15, lambda *a: (print('heard'), signal.alarm(1)))"
    console.start("r1", command("import signal, sys", heard, "signal.signal(14, lambda *a: sys.exit(9))",
                                "print('up')", "while True: signal.pause()"))  # fmt: skip
    console.text("r1", "up\n")
    console.stop("r1", 30)
    assert console.closed("r1")["exit_code"] == 9
    assert console.ended_log("r1")[0] == b"up\nheard\n"


def test_a_repeated_stop_shortens_the_grace_and_never_lengthens_it(console):
    console.start("r1", hostile(HOSTILE["ignores TERM"]))
    console.text("r1", "up")
    console.stop("r1", 3600)
    wait_for(lambda: console.read(0.01) or console.facts["r1"]["stopping_at"], "the stop")
    console.stop("r1", 7200)
    console.stop("r1", 0)
    console.stop("r1", 3600)
    facts = console.closed("r1")
    assert facts["exit_signal"] == signal.SIGKILL
    assert facts["closed_at"] - facts["stopping_at"] < PROMISED_S


def later(host, run, seconds=3600.0):
    return json.dumps({"deadline": time.monotonic() + seconds, "boot_id": host.facts(run)["boot_id"]})


def deadline(host, run):
    return json.loads((host.run_dir(run) / "stop.json").read_text())["deadline"]


def test_a_later_stop_does_not_change_the_deadline_that_serve_has_written(console, host):
    console.start("r1", hostile(HOSTILE["ignores TERM"]))
    console.text("r1", "up")
    console.stop("r1", 600)
    wait_for(lambda: console.read(0.01) or console.facts["r1"]["stopping_at"], "the stop")
    first = deadline(host, "r1")
    console.stop("r1", 7200)
    console.say("ping", id=1)
    console.hear("pong")
    assert deadline(host, "r1") == first
    again = host.connect()  # it knows the first stop from the file only
    again.hello()
    again.stop("r1", 7200)
    again.say("ping", id=2)
    again.hear("pong")
    assert deadline(host, "r1") == first
    again.stop("r1", 0)
    again.closed("r1")


def test_serve_does_not_lengthen_a_deadline_that_it_cannot_write(console, host):
    """On a full disk there is no stop.json. What serve sends to the keeper again and again is the earliest deadline."""
    console.start("r1", hostile(HOSTILE["ignores TERM"]))
    console.text("r1", "up")
    directory = host.run_dir("r1")
    (directory / "stop.json").mkdir()  # so that it cannot be written, nor read
    for keeper in host.keepers("r1"):
        os.kill(keeper, signal.SIGSTOP)
    (directory / "control").rename(directory / "control.old")
    os.mkfifo(directory / "control")
    pipe = os.open(directory / "control", os.O_RDWR | os.O_NONBLOCK)
    try:
        console.stop("r1", 5)
        console.stop("r1", 3600)
        console.say("ping", id=1)
        console.hear("pong")
        told = [float(line.split()[1]) for line in os.read(pipe, 65536).decode().splitlines()]
        assert len(told) >= 2 and max(told) == min(told)
    finally:
        os.close(pipe)
        (directory / "stop.json").rmdir()
        (directory / "control.old").rename(directory / "control")
        for keeper in host.keepers("r1"):
            os.kill(keeper, signal.SIGCONT)
    console.stop("r1", 0)
    console.closed("r1")


@pytest.mark.parametrize("way", ["the file", "the pipe"])
def test_a_keeper_never_lets_a_later_stop_lengthen_its_deadline(console, host, way):
    """Whatever serve writes: an older one, or one that was started anew, may know less than the keeper."""
    console.start("r1", hostile(HOSTILE["ignores TERM"]))
    console.text("r1", "up")
    console.stop("r1", 3)
    wait_for(lambda: console.read(0.01) or console.facts["r1"]["stopping_at"], "the stop")
    directory = host.run_dir("r1")
    if way == "the file":
        (directory / "later").write_text(later(host, "r1"))
        (directory / "later").rename(directory / "stop.json")
    (directory / "control").write_text(f"stop {time.monotonic() + 3600!r}\n")
    console.drop()  # so that serve does not repeat its own, shorter one
    again = wait_for(lambda: host.facts("r1")["phase"] == "closed", "the end of the grace period", 60)
    assert again and host.facts("r1")["exit_signal"] == signal.SIGKILL


def test_a_timeout_is_kept_with_the_console_disconnected(host):
    console = host.connect()
    console.hello()
    console.start(
        "r1", ["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"], timeout_s=1.5, grace_s=0.2
    )
    console.running("r1")
    console.drop()
    facts = wait_for(lambda: (f := host.facts("r1")) and f["phase"] == "closed" and f, "the timeout")
    assert (facts["why"], facts["exit_signal"]) == ("timeout", signal.SIGKILL)
    assert 1.7 <= facts["seconds"] < 1.7 + PROMISED_S and "timeout" in facts["message"]


def test_a_shell_in_the_run_ends_with_it(console, host):
    console.start("r1", ["sh", "-c", "echo up; exec sleep 600"], web_access=True)
    console.text("r1", "up")
    mark = host.facts("r1")["mark"]
    shell = subprocess.Popen(["sleep", "600"], env={"TRAINYARD_MARK": mark})
    stranger = subprocess.Popen(["sleep", "600"], env={"TRAINYARD_MARK": mark + "x"})
    try:
        console.stop("r1")
        console.closed("r1")
        assert shell.wait(PROMISED_S) in (-signal.SIGKILL, -signal.SIGTERM)
        assert stranger.poll() is None
    finally:
        for process in (shell, stranger):
            process.kill()
            process.wait()


def test_a_stranger_with_a_reused_pid_is_never_signalled():
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        ticks = read_process(stranger.pid).ticks
        assert signal_process(stranger.pid, ticks - 1, signal.SIGKILL) == "gone"
        assert stranger.poll() is None
        assert signal_process(stranger.pid, ticks, signal.SIGTERM) == "sent"
        assert stranger.wait(30) == -signal.SIGTERM
    finally:
        stranger.kill()
        stranger.wait()
    assert signal_process(stranger.pid, ticks, signal.SIGKILL) == "gone"


def test_a_lost_run_whose_pid_now_is_a_strangers_spares_the_stranger(console, host):
    console.start("r1", ["sleep", "600"])
    facts = console.running("r1")
    console.drop()
    for pid in host.keepers("r1") + [facts["pid"]]:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not host.keepers("r1"), "dead keepers")
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        # The same pid on the same boot, but another start time: as after a wrap of the pid counter.
        facts = host.facts("r1")
        save_facts(str(host.run_dir("r1")), dict(facts, pid=stranger.pid))
        again = host.connect()
        again.hello()
        assert again.closed("r1")["why"] == "lost"
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_an_unkillable_survivor_is_named_and_holds_the_run_open(monkeypatch, tmp_path):
    """The keeper signals it; here the kernel denies, as it does for a child that became another user."""
    home = Home("dep")
    monkeypatch.setattr(home, "runs", str(tmp_path))
    (tmp_path / "r1").mkdir()
    keeper = Keeper(home, "r1")
    one = Process(os.getpid(), 1, "S", 0)
    monkeypatch.setattr(keeper, "living_processes", lambda: [one])
    monkeypatch.setattr(processes, "signal_process", lambda pid, ticks, signum: "denied")
    denied = freeze_and_kill(keeper.living_processes)
    keeper.report_survivors(denied)
    saved = load_facts(str(tmp_path / "r1"))
    assert saved["survivors"] == [{"pid": os.getpid(), "why": "not permitted: it runs as another user"}]
    assert saved["phase"] != "closed"


def test_no_process_is_killed_before_all_are_frozen(monkeypatch):
    """A chain that forks and exits shows one new process after the other: it is frozen first, however long that
    takes."""
    chain = [Process(pid, 1, "S", 7) for pid in range(5)]
    passes = iter([chain[:1], chain[1:3], chain[1:4], chain[2:5], chain[2:5]])
    sent = []
    monkeypatch.setattr(processes, "signal_process", lambda *what: sent.append(what) or "sent")
    assert freeze_and_kill(lambda: next(passes)) == []
    kinds = [signum for _, _, signum in sent]
    first_kill = kinds.index(signal.SIGKILL)
    assert set(kinds[:first_kill]) == {signal.SIGSTOP} and set(kinds[first_kill:]) == {signal.SIGKILL}
    assert [pid for pid, _, signum in sent if signum == signal.SIGKILL] == [2, 3, 4]


@pytest.mark.parametrize(
    ("own", "host", "killed", "failed", "answer"),
    [
        (0, (5, 5, 6), True, True, (False, "certain")),  # the count of its own cgroup beats the host's count
        # A child was killed, and the program gave up by itself.
        (
            2,
            (5, 5, 5),
            False,
            True,
            (True, "certain"),
        ),
        (2, (5, 5, 6), True, False, (False, "certain")),  # it succeeded nevertheless
        (None, (5, 5, 6), True, True, (True, "likely")),
        (None, (5, 5, 5), True, True, (False, "certain")),
        (None, (4, 5, 5), True, True, (None, "unknown")),  # another process was OOM-killed, days ago perhaps
        (None, (None, None, None), True, True, (None, "unknown")),
        (None, (5, 5, None), True, True, (None, "unknown")),
        (None, (5, 5, 6), False, True, (False, "likely")),
        (None, (5, 5, 6), False, False, (False, "certain")),
    ],
)
def test_out_of_memory_is_distinguished_from_a_plain_kill(own, host, killed, failed, answer):
    found = judge_oom(own, OomCounts(*host), killed, failed)
    assert found[:2] == answer and bool(found[2]) == (found[0] is not False)


def test_a_cgroup_of_either_version_counts_its_own(tmp_path):
    assert own_oom_kills(None) is None and own_oom_kills(str(tmp_path)) is None
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert own_oom_kills(str(tmp_path)) == 3
    (tmp_path / "memory.events").write_text("low 0\noom 1\noom_kill 0\n")
    assert own_oom_kills(str(tmp_path)) == 0


EATER = command("import time", "food = bytearray(200 << 20)", "print('ate', len(food), flush=True)")


def test_the_memory_limit_is_enforced_where_the_host_allows_and_reported_where_not(console):
    console.start("r1", EATER, memory_mb=60)
    console.start("r2", EATER, memory_mb=4000)
    facts, fed = console.closed("r1"), console.closed("r2")
    assert (facts["memory_mb"], fed["exit_code"]) == (60, 0)
    assert facts["memory_enforced"] == fed["memory_enforced"] == memory_limits_here()
    if facts["memory_enforced"]:
        assert (facts["exit_signal"], facts["oom"], facts["oom_sure"]) == (9, True, "certain")
        assert "kernel" in facts["message"]
    else:
        assert (facts["exit_code"], facts["oom"]) == (0, False)
    assert facts["memory_cgroup"] is None or not os.path.exists(facts["memory_cgroup"])


@pytest.mark.needs_cgroups
def test_without_a_cgroup_the_hosts_count_makes_out_of_memory_likely(host, memory_group):
    """The replica is in a small cgroup that the runner does not know of, as under a limit that somebody else set."""
    console = host.connect(TRAINYARD_NO_CGROUP="1")
    console.hello()
    script = (f"open({str(memory_group / 'cgroup.procs')!r}, 'w').write('0')", "food = bytearray(200 << 20)")
    console.start("r1", command(*script), memory_mb=1000)
    facts = console.closed("r1")
    assert (facts["exit_signal"], facts["oom"], facts["oom_sure"]) == (9, True, "likely")
    assert facts["memory_enforced"] is False and "ran out of memory" in facts["message"]


@pytest.fixture
def memory_group():
    parent = delegated_cgroup("memory")
    assert parent, "this test makes a memory cgroup (v1), which this machine must allow"
    group = Path(parent) / f"trainyard-test-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(60 << 20))
    yield group
    wait_for(lambda: not (group / "cgroup.procs").read_text(), "the cgroup to be empty")
    group.rmdir()


def test_a_script_does_not_go_on_when_its_command_is_told_to_end(tmp_path, monkeypatch):
    """The two are signalled one after the other, on a busy machine with a while in between."""
    script = subprocess.Popen(["sh", "-c", "sleep 600; echo went on > it"], cwd=tmp_path)
    [sleep] = wait_for(lambda: processes.children_of(script.pid), "the script to start its command")
    wait_for(lambda: Path(f"/proc/{sleep}/comm").read_text() == "sleep\n", "the command")
    found = [read_process(pid) for pid in (sleep, script.pid)]
    real = processes.signal_process

    def slowly(*words):
        sent = real(*words)
        time.sleep(0.3)
        return sent

    monkeypatch.setattr(processes, "signal_process", slowly)
    signal_all(lambda: found, (signal.SIGTERM, signal.SIGCONT))
    assert script.wait(60) == -signal.SIGTERM
    assert not (tmp_path / "it").exists()
