"""A GPU is given to one run at a time, also when a foreign process is on it. Real processes, fake devices."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agents.runner.host.gpus import describe_holders, gpu_minors
from agents.runner.processes import all_processes
from agents.ssh.runner_archive import RUNNER as PACKAGE
from tests.unit.agents.runner.fake_gpus import FakeGpus
from tests.unit.agents.runner.protocol_client import Host, command

USER = pwd.getpwuid(os.getuid()).pw_name
SLEEPER = command("import time", "print('up')", "time.sleep(600)")


@pytest.fixture
def gpus(tmp_path):
    gpus = FakeGpus(tmp_path / "gpus", 3)
    yield gpus
    gpus.end_strangers()


@pytest.fixture
def host(tmp_path, gpus):
    (tmp_path / "home").mkdir()
    host = Host(tmp_path / "home")
    host.env.update(gpus.env, PATH=f"{gpus.tools}:{host.env['PATH']}")
    yield host
    host.clean()


@pytest.fixture
def console(host):
    console = host.connect()
    console.hello()
    return console


@pytest.fixture
def hurried(host):
    """A runner with a shorter timeout for its driver, which also looks more often."""
    console = host.connect(TRAINYARD_GPU_LOOK_S="3")
    console.hello()
    return console


def report(console, fits=lambda report: True):
    return console.hear("gpus", fits)


@pytest.mark.parametrize("how", ["open", "compute"])
def test_a_gpu_that_a_foreign_process_uses_is_refused_and_names_it(console, gpus, how):
    """nvidia-smi alone can miss the process, and so can the look at open devices."""
    stranger = gpus.stranger(0, how)
    console.start("r1", SLEEPER, gpus=gpus.uuids[:1])
    facts = console.closed("r1")
    assert (facts["why"], facts["refusal"], facts["never_started"]) == ("refused", "gpu_busy", True)
    [holder] = facts["busy"].pop(gpus.uuids[0])
    assert not facts["busy"]
    assert (holder["pid"], holder["user"], holder["how"]) == (stranger.pid, USER, how)
    assert holder["name"].startswith("python") and 0 <= holder["age_s"] < 600 and "mark" not in holder
    for words in (gpus.uuids[0], f"PID {stranger.pid}", holder["name"], USER):
        assert words in facts["message"]
    console.start("r2", SLEEPER, gpus=gpus.uuids[1:])
    assert console.running("r2"), "the others are free"


def test_monitors_and_our_other_runs_do_not_block_a_gpu(console, gpus):
    gpus.stranger(0, "open", name="nvtop")
    looks = f"import time; files = [open(path) for path in {[str(d) for d in gpus.devices]}]"
    console.start("r1", command(looks, "print('up')", "time.sleep(600)"), gpus=gpus.uuids[:1], mark="r1")
    console.text("r1", "up")
    console.start("r2", SLEEPER, gpus=gpus.uuids[1:2])
    assert console.running("r2")
    gpus.computes(2, console.facts["r1"]["pid"])
    console.start("r3", SLEEPER, gpus=gpus.uuids[2:])
    facts = console.closed("r3")
    assert facts["busy"][gpus.uuids[2]][0]["run"] == "live", "it computes where it has no business"


def test_what_a_run_left_on_its_gpu_is_killed_before_the_gpu_is_released(console, gpus):
    """No ancestry leads to it (a service of the login started it, say); its mark does."""
    console.start("r1", SLEEPER, gpus=gpus.uuids[:1], mark="r1")
    console.text("r1", "up")
    left = gpus.stranger(0, "open", TRAINYARD_MARK=console.facts["r1"]["mark"])
    console.stop("r1", 0)
    assert console.closed("r1")["busy"] == {} and left.wait(30) == -9


def test_a_process_on_a_released_gpu_that_may_not_be_killed_is_named(console, gpus):
    console.start("r1", SLEEPER, gpus=gpus.uuids[:1])
    console.text("r1", "up")
    stranger = gpus.stranger(0, "open")
    console.stop("r1", 0)
    facts = console.closed("r1")
    assert [held["pid"] for held in facts["busy"][gpus.uuids[0]]] == [stranger.pid]
    assert stranger.poll() is None


def test_a_leftover_with_the_mark_of_a_run_that_is_over_is_killed_before_a_start(console, host, gpus):
    console.start("r1", command("print('x')"), mark="r1")
    mark = console.closed("r1")["mark"]
    left = gpus.stranger(0, "open", TRAINYARD_MARK=mark, HOME=str(host.home))
    fake = gpus.stranger(1, "open", TRAINYARD_MARK=mark.replace(":r1", ":r7"), HOME=str(host.home))
    console.start("r2", SLEEPER, gpus=gpus.uuids[:1])
    assert console.running("r2") and left.wait(30) == -9
    console.start("r3", SLEEPER, gpus=gpus.uuids[1:2])
    assert console.closed("r3")["refusal"] == "gpu_busy" and fake.poll() is None, "a mark of no run of ours"


@pytest.mark.parametrize("fail", ["driver", "hang"])
def test_a_start_is_refused_when_the_driver_does_not_answer(hurried, gpus, fail):
    console = hurried
    gpus.set(fail=fail)
    console.start("r1", SLEEPER, gpus=gpus.uuids[:2])
    facts = console.closed("r1")
    assert facts["refusal"] == "gpu_busy" and facts["busy"] == {uuid: [] for uuid in gpus.uuids[:2]}
    assert ("couldn't communicate" if fail == "driver" else "did not answer") in facts["message"]


def test_quarantined_gpus_are_watched_until_they_are_proved_free(hurried, gpus):
    console = hurried
    stranger = gpus.stranger(0, "compute")
    console.say("watch", gpus=gpus.uuids[:2], soon=[gpus.uuids[1]])
    first = report(console)
    assert [held["pid"] for held in first["gpus"][gpus.uuids[0]]] == [stranger.pid]
    assert first["free"] == [gpus.uuids[1]] and first["error"] == "" and first["unseen"] >= 0
    gpus.end_strangers()
    console.say("watch", gpus=gpus.uuids[:1])
    assert report(console)["free"] == [], "once is not enough after a stranger was seen"
    assert report(console)["free"] == gpus.uuids[:1]


def test_a_lock_that_a_run_still_holds_is_seen_without_touching_it(console, gpus):
    console.start("r1", SLEEPER, gpus=gpus.uuids[:1])
    keeper = console.running("r1")
    console.say("watch", gpus=gpus.uuids[:1], soon=gpus.uuids[:1])
    [holder] = report(console)["gpus"][gpus.uuids[0]]
    assert (holder["how"], holder["run"]) == ("lock", "") and holder["name"].startswith("trainyard"), keeper


def test_only_the_processes_that_a_person_named_are_evicted(console, gpus):
    first, second = gpus.stranger(0, "open"), gpus.stranger(0, "compute")
    console.say("watch", gpus=gpus.uuids[:1])
    rows = {row["pid"]: row for row in report(console)["gpus"][gpus.uuids[0]]}
    wrong = [[second.pid, rows[second.pid]["ticks"] + 1]]
    console.say("evict", gpu=gpus.uuids[0], pids=wrong)
    assert console.hear("evicted")["words"] == ["none of them is on it any more"]
    console.say("evict", gpu=gpus.uuids[0], pids=[[first.pid, rows[first.pid]["ticks"]]])
    assert console.hear("evicted")["words"] == [f"PID {first.pid} was killed"]
    assert first.wait(30) == -9 and second.poll() is None


def test_serve_answers_while_a_look_hangs(console, gpus):
    gpus.set(fail="hang")
    console.say("watch", gpus=gpus.uuids[:1])
    console.say("ping", id=7)
    assert console.hear("pong")["id"] == 7
    assert not [message for message in console.heard if message["t"] == "gpus"]


LEAVES = """#!/bin/sh
case "$1" in --query-gpu*) setsid sleep 97 > /dev/null 2>&1 & esac
exec "$0-itself" "$@"
"""


def left_by_nvidia_smi():
    return [pid for pid in all_processes() if words_of(pid)[:2] == ["sleep", "97"]]


def words_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


@pytest.fixture
def leaving(gpus):
    """A look at the GPUs leaves a process behind. It stands for one that hangs in the kernel, which nobody can end."""
    program = gpus.tools / "nvidia-smi"
    program.rename(gpus.tools / "nvidia-smi-itself")
    program.write_text(LEAVES)
    program.chmod(0o755)
    yield
    for pid in left_by_nvidia_smi():
        os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("leaving")
def test_what_a_look_at_the_gpus_leaves_behind_is_none_of_the_runs_processes(console, gpus, host):
    """Neither its end waits for that, nor a stop; a keeper that is killed is replaced all the same."""
    console.start("r1", ["sh", "-c", "exit 3"], gpus=gpus.uuids[:1])
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["survivors"]) == (3, [])
    console.start("r2", SLEEPER, gpus=gpus.uuids[:1])
    console.text("r2", "up")
    began = time.monotonic()
    console.stop("r2", grace=30.0)
    assert console.closed("r2")["why"] == "stop" and time.monotonic() - began < 15
    console.start("r3", SLEEPER, gpus=gpus.uuids[:1])
    console.text("r3", "up")
    waits = host.keepers("r3")[1]
    os.kill(waits, signal.SIGKILL)
    console.stop("r3", grace=5.0)
    assert console.closed("r3")["why"] == "stop"
    assert left_by_nvidia_smi()


def test_minors_are_not_indexes(gpus, monkeypatch):
    monkeypatch.setenv("TRAINYARD_GPU_ROOT", str(gpus.root))
    assert gpu_minors() == {gpus.uuids[0]: 2, gpus.uuids[1]: 1, gpus.uuids[2]: 0}


def test_processes_of_others_are_counted_where_their_files_cannot_be_seen(gpus):
    program = (
        "import json; from agents.runner.host.gpus import open_devices; print(json.dumps(open_devices()[1]))"
    )
    argv = ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", program]
    if os.getuid() != 0:
        argv = argv[3:]
    cwd = PACKAGE.parents[1]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, cwd=cwd, timeout=60)
    assert json.loads(done.stdout) >= 1, "at least this test itself, or process 1"


def test_holders_are_described_for_a_person():
    row = {
        "pid": 7,
        "ticks": 1,
        "user": "alice",
        "age_s": 7300,
        "name": "python3",
        "how": "compute",
        "run": "",
    }
    unknown = {**row, "user": "", "age_s": None, "name": "", "how": "open"}
    assert describe_holders("GPU-1", [row, unknown]) == (
        "GPU GPU-1 is in use: PID 7 (python3) of alice for 2 h; PID 7 (not to be seen from here), by its open device"
    )
