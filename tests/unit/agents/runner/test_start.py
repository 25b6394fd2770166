"""Starting: one claim, one process, the promised environment; and everything that is refused."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import sys
import time
import zlib
from pathlib import Path

import pytest

from agents.runner.home import Home
from agents.runner.outbox import Outbox
from agents.runner.runs.facts import new_facts, save_facts
from agents.runner.runs.known import Runs
from agents.runner.wire import Decoder
from tests.unit.agents.runner.protocol_client import wait_for

HOSTILE = [
    "plain",
    'it\'s "quoted" `backticks` $(touch pwned) ${HOME} ; rm -rf /',
    "new\nline\rand\ttab",
    "unicode é 漢字 🚂 \udc80raw",
    "",
    "-n --help %s %n \\",
    "*?[a-z]~ && true || false | cat > pwned &",
]


def test_a_run_prints_exits_and_is_reported_whole(console, host):
    console.start("r1", ["sh", "-c", "echo out; echo err >&2; echo $TRAINYARD_RUN; exit 7"], pack=True)
    facts = console.closed("r1")
    data, digest = console.ended_log("r1")
    assert data == b"out\nerr\nr1\n"
    assert digest.startswith("sha256:")
    assert (facts["exit_code"], facts["exit_signal"], facts["why"], facts["oom"]) == (7, None, "exit", False)
    assert facts["claimed_at"] <= facts["started_at"] <= facts["ended_at"] <= facts["closed_at"]
    assert facts["log"]["size"] == 11 and facts["log"]["final"]
    # The order holds the environment: it is deleted when the run closes.
    assert not (host.run_dir("r1") / "order.json").exists()
    left = {"facts.json", "lock", "log", "log.marks", "log.tail", "work"}
    wait_for(lambda: {path.name for path in host.run_dir("r1").iterdir()} <= left, "a clean directory")


@pytest.mark.parametrize(("script", "code", "signal"), [("exit 0", 0, None), ("kill -SEGV $$", None, 11)])
def test_exit_codes_and_signals_are_distinguished(console, script, code, signal):
    console.start("r1", ["sh", "-c", script])
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["exit_signal"]) == (code, signal)


def nobody_works_on(console, host, run):
    """Wait until the keepers of this run are gone: a keeper holds the run's lock from its fork to its end."""
    console.say("ping", id=1)
    console.hear("pong")
    with open(host.run_dir(run) / "lock") as lock:
        wait_for(lambda: is_free(lock), "the run's keepers to be gone")


def is_free(lock):
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@pytest.mark.usefixtures("each_runtime")
def test_a_start_sent_again_starts_nothing(console, host):
    """While the run lives; when it is over and no process holds its lock; and over another connection."""
    order = ["sh", "-c", "echo start >> ledger; echo up; while [ ! -e go ]; do sleep 0.02; done"]
    for _ in range(3):
        console.start("r1", order)
    console.text("r1", "up")
    (host.run_dir("r1") / "work" / "go").touch()
    facts = console.closed("r1")
    nobody_works_on(console, host, "r1")
    console.start("r1", order, pull=False)
    nobody_works_on(console, host, "r1")
    later = host.connect()
    later.hello()
    later.start("r1", order)
    assert later.ended_log("r1")[0] == b"up\n"
    nobody_works_on(later, host, "r1")
    assert (host.run_dir("r1") / "work" / "ledger").read_text() == "start\n"
    assert host.facts("r1")["closed_at"] == facts["closed_at"]


@pytest.mark.usefixtures("each_runtime")
def test_a_stop_before_the_start_leaves_a_tombstone(console):
    console.stop("r1")
    facts = console.closed("r1")
    assert (facts["why"], facts["never_started"]) == ("tombstone", True)
    console.start("r1", ["sh", "-c", "echo never"])
    assert console.ended_log("r1")[0] == b""


@pytest.mark.usefixtures("each_runtime")
def test_a_forgotten_run_never_starts_again(console, host):
    console.start("r1", ["touch", "mine"], work_key="replica-0")
    console.closed("r1")
    console.start("r2", ["sleep", "60"], work_key="replica-0")
    console.say("forget", run="r1")
    console.hear("forgotten", lambda m: m["run"] == "r1")
    work = host.run_dir("r1").parent.parent / "work"
    assert not host.run_dir("r1").exists() and (work / "replica-0" / "mine").exists()
    console.running("r2")
    console.say("forget", run="r2")
    assert "not closed" in console.hear("error")["message"]
    console.stop("r2", 0)
    console.closed("r2")
    for run in ("r2", "never-was"):
        console.say("forget", run=run)
        console.hear("forgotten", lambda m, run=run: m["run"] == run)
    console.start("r3", ["true"], work_key="replica-0")
    console.closed("r3")
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(work / "replica-0", (two_days_ago, two_days_ago))
    console.say("forget", run="r3")
    console.hear("forgotten", lambda m: m["run"] == "r3")
    # A restart may still come: the files stay for a day after the last run was forgotten, and then they go.
    wait_for(lambda: (work / "replica-0").stat().st_mtime > two_days_ago + 3600, "its time to be noted")
    assert (work / "replica-0" / "mine").exists()
    os.utime(work / "replica-0", (two_days_ago, two_days_ago))
    for again in (console, host.connect()):
        if again is not console:
            again.hello()
            wait_for(lambda: not list(work.iterdir()), "its files to go")
        again.start("r1", ["sh", "-c", "echo again"], pull=False)
        assert again.closed("r1")["why"] == "tombstone"
    assert not host.run_dir("r1").exists()
    trash = host.run_dir("r1").parent.parent / "trash"
    wait_for(lambda: not list(trash.iterdir()), "an empty trash")


@pytest.mark.parametrize(
    "run", ["", ".", "..", ".x", "a/b", "../../x", "a\0", "a\n", "x" * 81, "é", 7, None, ["a"]]
)
def test_a_hostile_run_id_never_touches_the_disk(console, host, run):
    before = sorted(str(p) for p in host.home.rglob("*"))
    for kind in ("start", "stop", "pull", "forget"):
        console.say(kind, b"{}", run=run, grace_s=1, **{"from": 0})
        assert console.hear("error")["about"] == kind
    assert sorted(str(p) for p in host.home.rglob("*")) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"command": []}, "command"),
        ({"command": "ls"}, "command"),
        ({"command": ["a\0b"]}, "NUL"),
        ({"command": ["a", 3]}, "text"),
        ({"command": ["\ud83d"]}, "encoded"),
        ({"env": {"A=B": "c"}}, "variable"),
        ({"env": {"": "c"}}, "variable"),
        ({"env": {"A": "\0"}}, "NUL"),
        ({"env": ["A"]}, "env"),
        ({"gpus": ["../../etc/passwd;"]}, "gpus"),
        ({"port": 0}, "port"),
        ({"port": True}, "port"),
        ({"port": 1e9}, "port"),
        ({"timeout_s": "1"}, "timeout_s"),
        ({"grace_s": -1}, "grace_s"),
        ({"work_key": "../x"}, "work_key"),
    ],
)
def test_a_bad_order_is_refused_and_named(console, change, words):
    console.start(
        "r1",
        **{"argv": ["true"], **({"argv": change.pop("command")} if "command" in change else {})},
        **change,
    )
    facts = console.closed("r1")
    assert (facts["why"], facts["refusal"], facts["never_started"]) == ("refused", "bad_order", True)
    assert words in facts["message"]


def test_an_order_that_is_no_order_is_refused(console):
    bomb = zlib.compress(b"[" + b" " * (64 << 20) + b"]", 9)
    for number, (payload, packed) in enumerate(
        [(b"", 0), (b"[]", 0), (b"{", 0), (b"\xff", 0), (b"junk", 1), (bomb, 1)]
    ):
        console.say("start", payload, run=f"r{number}", z=packed)
        assert console.closed(f"r{number}")["refusal"] == "bad_order"
    assert console.peak_mb() < 50  # the last one unpacks to 64 MiB


@pytest.mark.parametrize("argv", [["no-such-program"], ["/etc"], ["./no"], ["/etc/passwd"]])
def test_a_command_that_cannot_be_executed_was_never_started(console, argv):
    console.start("r1", argv)
    facts = console.closed("r1")
    assert (facts["why"], facts["refusal"], facts["never_started"]) == ("refused", "exec_failed", True)
    assert argv[0] in facts["message"] and facts["exit_code"] is None


def test_hostile_strings_arrive_as_they_are(console, host):
    source = "import json, os, sys; env = {k: v for k, v in os.environ.items() if k.startswith('X')}\n"
    source += "print(json.dumps([sys.argv[1:], env]))"
    env = {f"X{number} {text!r:.9}".replace("=", ""): text for number, text in enumerate(HOSTILE)}
    env = {name.replace("\0", ""): text for name, text in env.items()}
    console.start("r1", [sys.executable, "-c", source, *HOSTILE], env=env)
    console.closed("r1")
    argv, seen = json.loads(console.ended_log("r1")[0])
    assert argv == HOSTILE
    assert seen == env
    assert not list(host.home.rglob("pwned"))


def test_the_environment_is_the_logins_the_orders_and_the_hosts(host):
    console = host.connect(TRAINYARD_NO_CGROUP="1", TRAINYARD_NO_INOTIFY="1", TRAINYARD_FLOOR_MB="1")
    console.hello()
    source = "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))"
    env = {
        "LANG": "de_DE.UTF-8",
        "DATA": "@WORK@/data:~",
        "SUB": "$HOME",
        "TRAINYARD_GPU_UUIDS": "all",
    }
    console.start("r1", [sys.executable, "-c", source], env=env, gpus=["GPU-b", "GPU-a"])
    console.closed("r1")
    seen, cwd = json.loads(console.ended_log("r1")[0])
    work = str(host.run_dir("r1") / "work")
    assert cwd == seen["PWD"] == seen["TRAINYARD_WORK"] == work
    assert seen["DATA"] == env["DATA"]
    assert (seen["LANG"], seen["HOME"], seen["USER"]) == ("de_DE.UTF-8", str(host.home), "gpu")
    assert (seen["SUB"], seen["TRAINYARD_RUN"]) == ("$HOME", "r1")
    # There is no driver to ask for their numbers.
    assert seen["CUDA_VISIBLE_DEVICES"] == seen["TRAINYARD_GPU_UUIDS"] == "GPU-b,GPU-a"
    ours = {"TRAINYARD_RUN", "TRAINYARD_WORK", "TRAINYARD_MARK", "TRAINYARD_GPU_UUIDS"}
    ours |= {"TRAINYARD_METRICS"}
    assert {name for name in seen if name.startswith("TRAINYARD_")} == ours


def test_a_restart_finds_the_work_directory_of_the_run_before(console):
    console.start("r1", ["sh", "-c", "echo né; echo x >left"], work_key="w")
    console.closed("r1")
    console.start("r2", ["cat", "left"], work_key="w")
    assert console.ended_log("r1")[0] == "né\n".encode()
    assert console.ended_log("r2")[0] == b"x\n"


def test_a_replica_starts_with_clean_descriptors_signals_and_session(console, host):
    source = """import json, os, signal
links = {n: '/proc/self/fd/' + n for n in os.listdir('/proc/self/fd')}
fds = {n: os.readlink(path) for n, path in links.items() if os.path.exists(path)}
python = (signal.SIGPIPE, signal.SIGXFSZ)
ignored = [s for s in signal.Signals if s not in python and signal.getsignal(s) == signal.SIG_IGN]
masked = list(signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(json.dumps([fds, ignored, masked, os.getsid(0) == os.getpid(), os.umask(0)]))"""
    console.start("r1", [sys.executable, "-c", source], gpus=["GPU-a"])
    console.closed("r1")
    fds, ignored, masked, leader, umask = json.loads(console.ended_log("r1")[0])
    log = str(host.run_dir("r1") / "log")
    assert fds.pop("0") == "/dev/null" and fds.pop("1") == fds.pop("2") == log
    assert [Path(path).name for path in fds.values() if not path.startswith("/proc")] == ["GPU-a.lock"]
    assert (ignored, masked, leader) == ([], [], True)
    mine = os.umask(0)
    os.umask(mine)
    assert umask == mine


def test_everything_written_is_for_its_owner_only(console, host):
    console.start("r1", ["true"], env={"TOKEN": "secret"})
    console.closed("r1")
    wait_for(lambda: not host.keepers("r1"), "the keepers' end")  # they still clean up
    # Containers are given this directory, and their users need to read it. It lies in one that is closed.
    shared = host.run_dir("r1").parents[1] / "python"
    for path in host.home.rglob("*"):
        if ".trainyard" in str(path) and not path.is_symlink() and shared not in (path, *path.parents):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.usefixtures("each_runtime")
def test_a_gpu_is_held_by_one_run_of_any_deployment(console, host):
    console.start("r1", ["sleep", "60"], gpus=["GPU-b", "MIG-GPU-a/1/0"])
    console.running("r1")
    other = host.connect()
    other.hello(deployment="other")
    other.start("r2", ["true"], gpus=["GPU-a", "GPU-b"])
    facts = other.closed("r2")
    assert (facts["refusal"], facts["never_started"]) == ("gpu_busy", True) and "GPU-b" in facts["message"]
    console.stop("r1")
    console.closed("r1")
    other.start("r3", ["true"], gpus=["GPU-b", "GPU-a", "MIG-GPU-a/1/0"])
    assert other.closed("r3")["exit_code"] == 0


def test_closed_means_free_and_clean_though_the_keeper_still_lives(console, host):
    host.arm("after_closed", "stop")
    console.start("r1", ["true"], gpus=["GPU-a"], env={"TOKEN": "secret"})
    console.closed("r1")
    wait_for(lambda: host.fired("after_closed"), "a stopped keeper")
    assert not (host.run_dir("r1") / "order.json").exists()
    console.start("r2", ["true"], gpus=["GPU-a"])
    assert console.closed("r2")["exit_code"] == 0


def test_a_taken_port_is_refused(console):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        console.start("r1", ["true"], port=port)
        assert console.closed("r1")["refusal"] == "port_taken"
    console.start("r2", ["true"], port=port)
    assert console.closed("r2")["exit_code"] == 0


def test_the_seal_is_kept_and_shown_again(host):
    """Of a start, of a stop that came first, of a refused order, and of the mark: whichever is asked for later."""
    console = host.connect()
    console.hello()
    for run, order in (("r1", b'{"command": ["true"]}'), ("r2", b"{}")):
        console.say("start", order, run=run, seal=f"5ea1{run[1:]}")
    console.say("stop", run="r3", grace_s=0, seal="5ea13")
    console.say("start", b'{"command": ["true"]}', run="r4", seal='../"x')
    for number in range(1, 5):
        console.closed(f"r{number}")
    console.say("ping", id=1, mark=1_000, seal="abc")
    console.hear("pong")
    console.drop()
    again = host.connect()
    greeting = again.hello()
    assert (greeting["mark"], greeting["seal"]) == (1_000, "abc")
    assert [again.facts[f"r{number}"]["seal"] for number in range(1, 5)] == ["5ea11", "5ea12", "5ea13", ""]
    assert again.facts["r2"]["refusal"] == "bad_order"


def test_a_forged_mark_is_overwritten(host):
    """By the first mark that a console sends: it has seen what was there, and did not believe it."""
    console = host.connect()
    console.hello()
    mark = host.run_dir("r1").parents[1] / "mark"
    mark.write_text("9000 forged")
    console.drop()
    again = host.connect()
    assert again.hello()["mark"] == 9000
    again.say("ping", id=1, mark=2_000, seal="abc")
    again.hear("pong")
    again.say("ping", id=2, mark=2_005, seal="def")
    again.hear("pong")
    wait_for(lambda: mark.read_text() == "2000 abc", "the true mark")


def test_an_older_epoch_is_refused(host):
    host.connect().hello(epoch=5)
    late = host.connect()
    late.say("hello", v=1, deployment="dep", epoch=4, console="restored")
    assert "epoch 4" in late.hear("error")["message"]
    assert late.process.wait(30) == 0
    host.connect().hello(epoch=5)


@pytest.mark.parametrize("deployment", ["", "../x", "A", "x" * 41, "a/b", 7, None])
def test_a_hostile_deployment_is_refused(host, deployment):
    console = host.connect()
    console.say("hello", v=1, deployment=deployment, epoch=1, console="x")
    assert console.hear("error")["about"] == "hello"
    assert not (host.home / ".trainyard").exists()


def test_sixty_starts_at_once_are_sixty_runs(console):
    for number in range(60):
        console.start(f"r{number}", ["true"], pull=False)
    for number in range(60):
        assert console.closed(f"r{number}")["exit_code"] == 0


def test_a_claim_is_reported_only_if_nothing_follows_soon(tmp_path, monkeypatch):
    """A start is then one message, and not two; but if a start hangs, the console learns of the claim."""
    monkeypatch.setenv("HOME", str(tmp_path))
    home, reader = Home("dep"), os.pipe()
    home.make()
    out = Outbox(reader[1])
    runs = Runs(out, 0o022)
    runs.take_over(home, set())
    os.mkdir(home.run("r1"))
    save_facts(home.run("r1"), new_facts("r1"))
    run = runs.find("r1")
    runs.check(run)
    assert not out.waiting()
    runs.check(run, later=True)
    runs.check(run, later=True)
    out.flush()
    [(fact, _)] = Decoder().feed(os.read(reader[0], 65536))
    assert (fact["t"], fact["run"], fact["phase"]) == ("fact", "r1", "claimed")
    save_facts(home.run("r1"), dict(new_facts("r1"), phase="running"))
    runs.check(run)
    out.flush()
    assert b'"phase":"running"' in os.read(reader[0], 65536)
    for fd in (*reader, runs.inotify.fd):
        os.close(fd)
