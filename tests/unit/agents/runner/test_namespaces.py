"""A run in a PID namespace of its own: its end is reported as truly as any other, and no process stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from agents.runner.processes import all_processes, descendants, read_process
from agents.runner.runs.containment import cgroup_pids
from agents.runner.runs.namespaces import why_no_namespace
from tests.unit.agents.runner.protocol_client import command, wait_for
from tests.unit.agents.runner.shell_client import ShellClient
from tests.unit.agents.runner.test_samples import SPIN, first_gpu

# Twenty daemons that cannot be found: no mark, no parents, and they ignore SIGTERM.
SLEEP_S = f"600.{os.getpid()}"
DAEMONS = f"""
signal.signal(15, signal.SIG_IGN)
for n in range(20):
    if not os.fork():
        os.setsid()
        if os.fork(): os._exit(0)
        os.execvpe('sleep', ['sleep', '{SLEEP_S}'], {{}})
    os.wait()
"""
PATIENT = (
    "signal.signal(15, lambda *a: sys.exit(9))\nprint('up')\n"
    "while not os.path.exists('go'): time.sleep(0.01)\nsys.exit(7)"
)


def python(*lines):
    return command("import os, signal, sys, time", *lines)


@pytest.fixture
def console(host):
    """Without a cgroup, so that only the namespace can hold hidden processes."""
    assert not why_no_namespace(), "this machine must allow PID namespaces"
    console = host.connect(TRAINYARD_NO_CGROUP="1")
    console.hello()
    return console


def start(console, argv, run="r1", **order):
    console.start(run, argv, pid_namespace=True, **order)


def first_of(host, run="r1"):
    return host.facts(run)["first"][0]


def ending(facts):
    return facts["exit_code"], facts["exit_signal"], facts["why"], facts["containment"]


def everybody(host, run="r1"):
    first = first_of(host, run)
    return {first} | descendants({first}, all_processes())


def none_lives(pids):
    return not any((p := read_process(pid)) and p.state not in "ZX" for pid in pids)


def daemons():
    found = set()
    for pid in all_processes():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == f"sleep\0{SLEEP_S}\0".encode():
                found.add(pid)
    return found


@pytest.mark.parametrize(
    ("argv", "code", "signum"),
    [
        (["sh", "-c", "exit 3"], 3, None),
        (["sh", "-c", "kill -9 $$"], None, signal.SIGKILL),
        (["sh", "-c", "kill -TERM $$"], None, signal.SIGTERM),
    ],
)
def test_the_true_end_of_a_run_in_a_namespace_is_reported(console, argv, code, signum):
    start(console, argv)
    assert ending(console.closed("r1")) == (code, signum, "exit", "pid_namespace")


def test_a_run_sees_only_its_own_processes_and_its_facts_have_the_pid_of_the_host(console, host):
    start(console, ["sh", "-c", "echo $$ $(ls /proc | grep -c '^[0-9]'); id -u; echo up; exec sleep 600"])
    lines = console.text("r1", "up").splitlines()
    pid, seen = map(int, lines[0].split())
    assert pid < 10 and seen < 10 and int(lines[1]) == os.getuid()
    facts = console.running("r1")
    assert read_process(facts["pid"]).ticks == facts["ticks"]
    line = Path(f"/proc/{facts['pid']}/cmdline")
    wait_for(lambda: line.read_bytes().startswith(b"sleep"), "the command under the pid that its facts name")
    assert read_process(facts["pid"]).parent == first_of(host)


def test_a_command_that_is_not_there_is_refused(console):
    start(console, ["/no/such/program"])
    facts = console.closed("r1")
    assert (facts["refusal"], facts["never_started"]) == ("exec_failed", True)


@pytest.mark.parametrize("source", [PATIENT, "print('up')\ntime.sleep(600)", None])
def test_a_stop_sends_sigterm_first_and_leaves_no_process(console, host, source):
    start(console, python(source or DAEMONS + "print('up')\ntime.sleep(600)"))
    console.text("r1", "up\n")
    assert source or wait_for(lambda: len(daemons()) == 20, "twenty daemons")
    console.stop("r1", 0.2 if source is None else 60)
    facts = console.closed("r1")
    expected = {PATIENT: (9, None), None: (None, signal.SIGKILL)}.get(source, (None, signal.SIGTERM))
    assert ending(facts) == (*expected, "stop", "pid_namespace")
    assert not daemons()


def test_daemons_end_with_their_replica(console, host):
    start(console, python(DAEMONS + "print('up')\nsys.exit(5)"))
    assert ending(console.closed("r1")) == (5, None, "exit", "pid_namespace")
    assert not daemons()


@pytest.mark.parametrize("victim", ["outer", "inner", "first", "first at a stop", "both", "both and replica"])
def test_after_any_kill_the_true_end_is_reported_and_no_process_is_left(console, host, victim):
    start(console, python(DAEMONS + PATIENT), gpus=["GPU-a"])
    console.text("r1", "up\n")
    wait_for(lambda: len(daemons()) == 20, "twenty daemons")
    pid = console.running("r1")["pid"]
    tree, keepers = everybody(host), host.keepers("r1")
    assert len(tree) == 22 and len(keepers) == 2
    if victim == "first at a stop":  # it is frozen: it cannot report how the replica ends
        os.kill(first_of(host), signal.SIGSTOP)
        console.stop("r1", 60)
    elif victim.startswith("both"):
        for doomed in keepers + [pid] * (victim != "both"):
            os.kill(doomed, signal.SIGKILL)
    else:
        doomed = {"outer": keepers[0], "inner": keepers[1], "first": first_of(host)}[victim]
        os.kill(doomed, signal.SIGKILL)
        if victim != "first":
            wait_for(lambda: len(host.keepers("r1")) == 1, "one keeper")
            (host.run_dir("r1") / "work" / "go").touch()
    facts = console.closed("r1")
    expected = {
        "first": (None, signal.SIGKILL, "exit"),
        "first at a stop": (9, None, "stop"),
        "both": (None, None, "lost"),
        "both and replica": (None, None, "lost"),
    }
    assert ending(facts)[:3] == expected.get(victim, (7, None, "exit"))
    assert ("first process of its PID namespace" in facts["message"]) == (victim == "first")
    assert none_lives(tree) and not daemons()
    console.start("r2", ["true"], gpus=["GPU-a"])
    assert console.closed("r2")["exit_code"] == 0


@pytest.mark.parametrize(
    "point", ["after_order", "before_gate", "after_gate", "before_started", "before_reap"]
)
def test_a_keeper_killed_at_any_point_is_reported_as_without_a_namespace(console, host, point):
    host.arm(point)
    start(console, ["sh", "-c", "echo start >> ledger; exit 7"])
    facts = console.closed("r1")
    began = point not in ("after_order", "before_gate")
    assert (facts["exit_code"], facts["why"]) == ((7, "exit") if began else (None, "lost"))
    ledger = host.run_dir("r1") / "work" / "ledger"
    assert ledger.exists() == began
    wait_for(lambda: not host.keepers("r1"), "no keeper left")


def test_a_stop_before_the_gate_means_never_started(console, host):
    host.arm("before_gate", "stop")
    start(console, ["sh", "-c", "echo start >> ledger"])
    wait_for(lambda: host.fired("before_gate"), "the gate")
    tree = everybody(host)
    console.stop("r1", 0)
    for keeper in host.keepers("r1"):
        os.kill(keeper, signal.SIGKILL)
    facts = console.closed("r1")
    assert (facts["why"], facts["exit_code"]) == ("lost", None)
    assert not (host.run_dir("r1") / "work" / "ledger").exists() and none_lives(tree)


def test_the_next_runner_takes_over_a_run_in_a_namespace(console, host):
    start(console, python(PATIENT))
    console.text("r1", "up")
    os.kill(console.process.pid, signal.SIGKILL)
    again = host.connect()
    again.hello()
    assert again.facts["r1"]["containment"] == "pid_namespace"
    (host.run_dir("r1") / "work" / "go").touch()
    assert ending(again.closed("r1")) == (7, None, "exit", "pid_namespace")


@pytest.mark.needs_cgroups
@pytest.mark.parametrize("end", ["stop", "both keepers killed"])
def test_a_namespace_with_a_cgroup_leaves_no_process_and_no_cgroup(host, end):
    console = host.connect()
    console.hello()
    start(console, python(DAEMONS + PATIENT))
    console.text("r1", "up\n")
    wait_for(lambda: len(daemons()) == 20, "twenty daemons")
    facts, tree = console.running("r1"), everybody(host)
    assert facts["containment"] == "pid_namespace" and cgroup_pids(facts["cgroup"]) == tree - {first_of(host)}
    if end == "stop":
        console.stop("r1", 60)
    else:
        for keeper in host.keepers("r1"):
            os.kill(keeper, signal.SIGKILL)
    expected = (9, None, "stop") if end == "stop" else (None, None, "lost")
    assert ending(console.closed("r1")) == (*expected, "pid_namespace")
    assert none_lives(tree) and not daemons() and not Path(facts["cgroup"]).exists()


@pytest.mark.needs_cgroups
def test_a_memory_limit_holds_in_a_namespace_and_its_kill_is_certain(host):
    console = host.connect()
    console.hello()
    start(console, python("food = [bytearray(8 << 20) for _ in range(30)]"), memory_mb=64)
    facts = console.closed("r1")
    assert ending(facts) == (None, signal.SIGKILL, "exit", "pid_namespace")
    assert (facts["oom"], facts["oom_sure"], facts["memory_enforced"]) == (True, "certain", True)
    assert not any(Path(path).exists() for path in (facts["cgroup"], facts["memory_cgroup"]) if path)


@pytest.mark.parametrize("beside", ["subreaper", pytest.param("cgroup", marks=pytest.mark.needs_cgroups)])
def test_shells_and_samples_of_a_run_in_a_namespace(host, smi, beside):
    """A busy orphan in a session of its own is counted; the shell is outside the namespace and ends with the run."""
    console = host.connect(**{"TRAINYARD_NO_CGROUP": "1"} if beside == "subreaper" else {})
    console.hello()
    gpu = first_gpu(host)
    start(console, SPIN, gpus=[gpu], web_access=True)
    console.text("r1", "at work")
    sample = console.hear("sample", lambda m: m["cpu"] >= 0.05)
    assert 64 <= sample["rss_mb"] < 640 and sample["gpus"] == {gpu: [37, 4]}
    shell = ShellClient(host, settings={"keep_s": 0})
    shell.type(b"cat /proc/self/cgroup; echo $TRAINYARD_RUN-$$-$((6*7))\n")
    text = shell.seen(b"-42\r\n").decode()
    facts = console.running("r1")
    assert (beside == "cgroup") == bool(facts["cgroup"])
    assert not facts["cgroup"] or os.path.basename(facts["cgroup"]) in text
    pid = int(text.rpartition("\nr1-")[2].partition("-")[0])
    assert not none_lives([pid])
    console.stop("r1", 0)
    assert console.closed("r1")["containment"] == "pid_namespace"
    wait_for(lambda: none_lives([pid]), "the shell to end with its run")
    shell.drop()


def test_without_a_possible_namespace_the_run_goes_on_and_reports_why(host):
    """In a user namespace that allows no more of them: as on a host whose admin has forbidden them."""
    forbidding = f'echo 0 > /proc/sys/user/max_pid_namespaces; exec {host.python} "$@"'
    wrapper = host.home / "python"
    wrapper.write_text(f"#!/bin/sh\nexec unshare -Ur sh -c '{forbidding}' sh \"$@\"\n")
    wrapper.chmod(0o700)
    host.python = str(wrapper)
    console = host.connect(TRAINYARD_NO_CGROUP="1")
    console.hello()
    start(console, ["sh", "-c", "exit 3"])
    facts = console.closed("r1")
    assert ending(facts) == (3, None, "exit", "subreaper")
    assert "unshare" in facts["namespace_refused"] and not facts["first"]
