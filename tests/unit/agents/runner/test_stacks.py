"""The mode `stacks`: where the Python programs of runs stand, bounded, masked, and with the reason where it is not
known."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agents.runner.logs.mask_patterns import MaskPatterns
from agents.runner.shells import stacks
from agents.runner.wire import STACKS_PREFACE
from tests.unit.agents.runner.protocol_client import PYTHON, RUNNER, wait_for
from tests.unit.agents.runner.shell_client import ShellClient

MACHINE = os.uname().machine
SHA = "a" * 64
PY_SPY = Path(sys.prefix) / "bin" / "py-spy"
STANDS = """
import subprocess, sys, threading, time
def in_all_reduce():
    while True: time.sleep(3600)
def loads_data():
    while True: time.sleep(3600)
threading.Thread(target=loads_data, name="loader", daemon=True).start()
child = "import time\\ndef worker_waits():\\n  time.sleep(3600)\\nworker_waits()"
subprocess.Popen([sys.executable, "-c", child])
print("stands", flush=True)
in_all_reduce()
"""


@pytest.fixture
def py_spy(host):
    """The program where the console puts it."""
    place = host.home / ".trainyard" / "tools" / SHA / "bin"
    place.mkdir(parents=True)
    shutil.copy(PY_SPY, place / "py-spy")
    return place / "py-spy"


@pytest.fixture
def stands(console, host):
    """Starts a run that stands, and waits until it does."""

    def start(run, program=STANDS, **more):
        console.start(run, ["sh", "-c", f"'{PYTHON}' -c \"$PROGRAM\"; true"], web_access=True, **more)
        console.text(run, "stands")

    def run(name, program=STANDS, env=None, **more):
        start(name, env={"PROGRAM": program, **(env or {})}, **more)

    return run


@pytest.fixture
def ask(host):
    def ask(*runs, tools=None, **more):
        request = {
            "deployment": "dep",
            "runs": list(runs),
            "tools": {MACHINE: SHA} if tools is None else tools,
            **more,
        }
        done = subprocess.run(
            [PYTHON, str(RUNNER), "stacks"], input=json.dumps(request).encode() + b"\n", env=host.env,
            stdout=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
        assert done.stdout.startswith(STACKS_PREFACE)
        head, _, rest = done.stdout[len(STACKS_PREFACE) :].partition(b"\n")
        answer = json.loads(head)
        if not answer.get("ok"):
            return answer
        assert len(rest) == answer["size"]
        return json.loads(rest)["runs"]

    return ask


def functions(process):
    """By thread, the names of the functions in which it stands. A program without `threading` has named none."""
    return {
        name or "MainThread": [frame.split(" ")[0] for frame in frames]
        for name, _, frames in process["threads"]
    }


def test_each_python_process_of_a_run_is_seen_with_its_threads(stands, ask, py_spy):
    stands("r1")
    wait_for(lambda: len(ask("r1")["r1"]["processes"]) == 2, "the child to be up")
    program, child = ask("r1")["r1"]["processes"]
    assert functions(program)["MainThread"][:2] == ["in_all_reduce", "<module>"]
    assert functions(program)["loader"][0] == "loads_data"
    assert functions(child)["MainThread"][0] == "worker_waits"


def test_programs_in_containers_are_seen_from_the_host(each_runtime, stands, ask, py_spy, console):
    """py-spy is not in the image. It looks at the processes by their numbers on the host."""
    stands("r1")
    found = ask("r1")["r1"]
    assert found["container"] is (each_runtime != "process")
    assert functions(found["processes"][0])["MainThread"][:2] == ["in_all_reduce", "<module>"]
    console.stop("r1")
    console.closed("r1")


def test_what_is_started_in_a_shell_is_no_part_of_the_run(stands, ask, py_spy, host):
    stands("r1")
    client = ShellClient(host, settings={"keep_s": 0})
    client.type(f"'{PYTHON}' -c 'import time; print(\"in the \" + \"shell\"); time.sleep(600)'\n".encode())
    client.seen(b"in the shell")
    found = ask("r1")["r1"]["processes"]
    assert found and not [each for each in found if "in the" in each["command"]]
    client.drop()


def test_several_runs_of_a_host_are_looked_at_in_one_go(stands, ask, py_spy, console):
    stands("r1")
    stands(
        "r2", "import time\ndef elsewhere():\n  print('stands', flush=True); time.sleep(3600)\nelsewhere()"
    )
    console.start("closed-to-shells", ["sleep", "600"])
    console.running("closed-to-shells")
    console.start("no-python", ["sleep", "600"], web_access=True)
    console.running("no-python")
    found = ask("r1", "r2", "closed-to-shells", "no-python", "r9")
    assert functions(found["r2"]["processes"][0])["MainThread"] == ["elsewhere", "<module>"]
    assert functions(found["r1"]["processes"][0])["MainThread"][0] == "in_all_reduce"
    assert "does not allow" in found["closed-to-shells"]["error"]
    assert "not running" in found["r9"]["error"]
    assert [found[run]["reason"] for run in ("closed-to-shells", "r9")] == ["no_shells", "not_running"]
    assert found["no-python"] == {"container": False, "count": 1, "processes": [], "left_out": 0}


def test_secret_values_are_masked(stands, ask, py_spy):
    program = (
        "import os, threading, time\nthreading.current_thread().name = 'of ' + os.environ['TOKEN']\n"
        "def waits():\n  print('stands', flush=True); time.sleep(3600)\nwaits()"
    )
    stands("r1", program, env={"TOKEN": "s3cr3t-value"}, secrets=["TOKEN"])
    (process,) = ask("r1")["r1"]["processes"]
    assert [name for name, _, _ in process["threads"]] == ["of ************"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("Permission Denied: Try running again with elevated permissions", "denied"),
        ("Error: Operation not permitted (os error 1)", "denied"),
        ("Error: no such interpreter", "Error: no such interpreter"),
    ],
)
def test_a_process_that_py_spy_does_not_show_is_named_with_the_reason(stands, ask, py_spy, words, problem):
    stands("r1", "print('stands', flush=True)\nimport time\ntime.sleep(3600)")
    py_spy.write_text(f"#!/bin/sh\necho '{words}'\nexit 1\n")
    (process,) = ask("r1")["r1"]["processes"]
    assert process["problem"] == problem and "threads" not in process


def test_tools_that_are_not_there_are_asked_for(stands, ask):
    stands("r1")
    assert ask("r1")["missing"] == MACHINE
    refused = ask("r1", tools={})["r1"]
    assert "no py-spy for processors of this kind" in refused["error"] and refused["reason"] == "no_py_spy"


def test_what_is_told_of_a_run_is_bounded(stands, ask, py_spy):
    deep = (
        "import threading, time\n"
        f"def {'f' * 150}(left):\n  {'f' * 150}(left - 1) if left else time.sleep(3600)\n"
        f"for n in range(80): threading.Thread(target={'f' * 150}, args=(150,), daemon=True).start()\n"
        "print('stands', flush=True)\ntime.sleep(3600)"
    )
    stands("r1", deep)
    found = ask("r1")["r1"]
    assert len(json.dumps(found)) < stacks.MAX_BYTES + 1000
    (process,) = found["processes"]
    assert process["left_out"] > 0 and len(process["threads"]) > 2
    few = ask("r1", room=32 * 1024)["r1"]
    assert len(json.dumps(few)) < 33 * 1024 and few["processes"][0]["threads"], "the console has little room"
    assert len(json.dumps(ask("r1", room=1 << 40)["r1"])) < stacks.MAX_BYTES + 1000


def test_a_process_without_a_thread_hides_none_after_it():
    """One that is about to start, or one whose threads this py-spy tells in other words."""
    looks = [stacks.Look("r1", os.getpid(), MaskPatterns([])) for _ in range(3)]
    for look in looks[1:]:
        look.threads = [("MainThread", "idle", ["waits (a.py:1)"])]
    told = stacks.told(looks, stacks.MAX_BYTES)
    assert told["left_out"] == 0 and [len(each["threads"]) for each in told["processes"]] == [0, 1, 1]
    # Those for which there is no room are counted.
    looks[1].threads = [("MainThread", "idle", ["f" * 200] * 100)]
    told = stacks.told(looks, 8 * 1024)
    assert told["left_out"] == 2 and [len(each["threads"]) for each in told["processes"]] == [0]


def test_a_py_spy_that_hangs_is_given_up(tmp_path):
    """Those that wait for their turn are slow too, and none of them is left."""
    hangs = tmp_path / "py-spy"
    hangs.write_text("#!/bin/sh\necho $$ >> %s\nexec sleep 600\n" % (tmp_path / "pids"))
    hangs.chmod(0o755)
    looks = [stacks.Look("r1", os.getpid(), MaskPatterns([])) for _ in range(stacks.AT_ONCE + 2)]
    stacks.look_at_all(looks, str(hangs), time.monotonic() + 1.0)
    assert [look.problem for look in looks] == ["slow"] * len(looks)
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == stacks.AT_ONCE and not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
