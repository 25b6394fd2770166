"""Runs in containers of a real podman and a real Docker: what a run promises without one, it promises with one.

Those of Apptainer are in test_apptainer.py: most of these tests are run there too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from agents.runner.processes import all_processes, read_process
from agents.runner.runtimes import containers
from agents.runner.runtimes.containers import Container
from agents.runner.shells.frames import CLOSE
from tests.harness.containers import ENGINES, IMAGE
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.shell_client import ShellClient


@pytest.fixture(scope="module", params=["docker", "podman"])
def engine(request, tmp_path_factory):
    engine = ENGINES[request.param](tmp_path_factory.mktemp(request.param))
    engine.make_image()
    yield engine
    engine.remove()


@pytest.fixture
def console(host, engine):
    yield connect(host, engine)
    wait_for(lambda: not engine.containers(), "no container to be left")


def connect(host, engine, epoch=1, **env):
    host.env.update(engine.env, **env)
    engine.give(host)
    console = host.connect()
    console.hello(epoch=epoch)
    console.engine = engine.kind
    return console


def start(console, run, *words, image=IMAGE, runtime=None, **order):
    """A run whose ENTRYPOINT is a shell."""
    runtime = {
        "kind": console.engine,
        "image": image,
        "entrypoint": ["sh", "-c"],
        "args": list(words),
        **(runtime or {}),
    }
    console.start(run, ["unused"], runtime=runtime, **order)


def pid_in(host, run, name="container.pid"):
    return int((Path(host.facts(run)["runtime"]["place"]) / name).read_text())


def test_it_runs_prints_and_ends_with_its_status(host, console, engine):
    start(console, "r1", 'echo hello; echo "$FOO"; pwd; exit 7', env={"FOO": "a b\nc"})
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["exit_signal"], facts["why"]) == (7, None, "exit"), (
        facts["message"],
        facts["refusal"],
    )
    assert console.ended_log("r1")[0] == b"hello\na b\nc\n/\n"
    assert facts["containment"] in engine.containments and facts["runtime"]["name"].startswith(
        "trainyard-r1-"
    )
    assert facts["started_at"] and not facts["never_started"]


def test_variables_with_names_that_no_shell_knows_are_in_the_container(console, engine):
    runtime = {"entrypoint": ["cat", "/proc/self/environ"], "args": []}
    start(console, "r1", runtime=runtime, env={"a.b": "1", "c-d": "x\ny", "HOME-x": "2"})
    console.closed("r1")
    found = console.ended_log("r1")[0].split(b"\0")
    assert {b"a.b=1", b"c-d=x\ny", b"HOME-x=2"} <= set(found)


def test_it_is_running_when_its_program_runs(host, console, engine):
    start(console, "r1", "echo up; exec sleep 600")
    facts = console.running("r1")
    console.text("r1", "up")
    assert b"sleep" in Path(f"/proc/{facts['pid']}/cmdline").read_bytes() or facts["pid"] == pid_in(
        host, "r1"
    )
    (name,) = engine("ps", "--format", "{{.Names}}").split()
    assert name == facts["runtime"]["name"]
    console.stop("r1", 0)
    console.closed("r1")


@pytest.mark.parametrize(
    "runtime, log",
    [
        ({"entrypoint": None, "args": []}, b"from cmd\n"),
        ({"entrypoint": None, "args": ["from", "args"]}, b"from args\n"),
        ({"entrypoint": ["echo", "from", "command"], "args": []}, b"from command\n"),
        ({"entrypoint": ["echo", "from"], "args": ["both", "--privileged"]}, b"from both --privileged\n"),
    ],
)
def test_command_replaces_entrypoint_and_args_replace_cmd(console, engine, runtime, log):
    image = engine.make_image("localhost/trainyard/echo:1", 'ENTRYPOINT ["echo"]', 'CMD ["from", "cmd"]')
    start(console, "r1", image=image, runtime=runtime)
    console.closed("r1")
    assert console.ended_log("r1")[0] == log


def test_the_work_directory_and_tmpdir_are_the_hosts(host, console, engine):
    start(console, "r1", 'echo kept > "$TRAINYARD_WORK/file"; echo x > "$TMPDIR/x"; df /dev/shm | tail -n 1')
    facts = console.closed("r1")
    assert facts["exit_code"] == 0
    assert (Path(facts["work"]) / "file").read_text() == "kept\n"


def test_with_code_it_starts_in_the_work_directory(host, console, engine):
    start(console, "r1", 'pwd; echo "$TRAINYARD_WORK"', runtime={"workdir": True})
    console.closed("r1")
    assert console.ended_log("r1")[0].decode() == 2 * (host.facts("r1")["work"] + "\n")


def test_no_value_of_a_variable_is_on_a_command_line_or_left_on_disk(host, console, engine):
    start(
        console,
        "r1",
        "echo up; exec sleep 600",
        env={"TOKEN": "s3cret-1", "HOME": "/s3cret-2"},
        web_access=True,
    )
    console.text("r1", "up")
    console.running("r1")
    lines = b""
    for pid in host.processes():
        with contextlib.suppress(OSError):  # it has just ended
            lines += Path(f"/proc/{pid}/cmdline").read_bytes()
    assert b"s3cret" not in lines and engine.kind.encode() in lines
    assert not (host.run_dir("r1") / "container.env").exists()
    env = subprocess.run(
        [engine.kind, "exec", host.facts("r1")["runtime"]["name"], "env"],
        env={**os.environ, **engine.env}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "TOKEN=s3cret-1" in env.stdout and "HOME=/s3cret-2" in env.stdout
    console.stop("r1", 0)
    console.closed("r1")


def test_a_stop_is_heard_by_the_program(console, engine):
    start(console, "r1", "trap 'echo bye; exit 5' TERM; echo up; while true; do sleep 0.1; done")
    console.text("r1", "up")
    console.running("r1")
    console.stop("r1", 30)
    facts = console.closed("r1")
    assert facts["exit_code"] == 5 and facts["why"] == "stop"
    # The stop is for the `sleep` too, of which the shell may say "Terminated".
    assert b"bye" in console.ended_log("r1")[0].split()


def test_a_stop_is_for_the_programs_and_not_for_what_passes_it_on(host, console, engine):
    start(console, "r1", "echo up; sleep 60; exit 3")
    console.text("r1", "up")  # an init that passes signals on has started its program
    first, everyone = pid_in(host, "r1"), all_processes()
    container = Container(str(host.run_dir("r1")), host.facts("r1"))
    told = {process.pid for process in container.programs(everyone)}
    assert told and (first in told) is not any(map(os.path.exists, containers.INIT_PLACES))
    alone = {first: everyone[first]}
    assert [process.pid for process in container.programs(alone)] == [first], "it has started nothing yet"
    console.stop("r1", 0.2)
    assert console.closed("r1")["why"] == "stop"


def test_one_that_ignores_the_stop_is_killed_after_the_grace(console, engine):
    start(console, "r1", "trap '' TERM; echo up; while true; do sleep 0.1; done")
    console.text("r1", "up")
    console.running("r1")
    console.stop("r1", 0.5)
    facts = console.closed("r1")
    assert facts["why"] == "stop" and 128 + 9 in (facts["exit_code"], 128 + (facts["exit_signal"] or 0))


def test_a_program_that_does_not_exist_is_no_start(console, engine):
    start(console, "r1", runtime={"entrypoint": ["/no/such/program"], "args": []})
    facts = console.closed("r1")
    # With an init of its own, the container is started, and it is the init that cannot execute the program.
    assert facts["refusal"] == "exec_failed" or facts["exit_code"] in (1, 127)
    assert b"no such file" in console.ended_log("r1")[0].lower()


def test_an_image_that_is_not_here_is_not_prepared(console, engine):
    start(console, "r1", "true", image="localhost/trainyard/none:1")
    facts = console.closed("r1")
    assert (facts["why"], facts["refusal"], facts["never_started"]) == ("refused", "unprepared", True)
    assert "none:1" in facts["message"]


def test_a_host_without_the_engine_refuses(host, engine):
    console = connect(host, engine)
    start(console, "r1", "true", runtime={"kind": "enroot"})
    facts = console.closed("r1")
    assert facts["refusal"] == "runtime" and "enroot is not installed" in facts["message"]


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


def client_of(facts):
    """The engine's client of a run: that of Docker reads its output."""
    name = facts["runtime"]["name"].encode()
    for pid in all_processes():
        with contextlib.suppress(OSError):  # it has just ended
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[1:2] in ([b"run"], [b"logs"]) and name in words:
                return pid
    return 0


def follower_of(facts):
    title = f"trainyard-follower {facts['runtime']['name']}".encode()
    for pid in all_processes():
        with contextlib.suppress(OSError):  # it has just ended
            if Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0") == title:
                return pid
    return 0


def is_alive(pid):
    found = all_processes().get(pid)
    return found is not None and found.state not in "ZX"


@pytest.mark.parametrize(("words", "status"), [("exec {}", 137), ("{}; sleep 1; exit 3", 3)])
def test_too_much_memory_is_told_as_such(host, console, engine, words, status):
    """Of the program, and of a worker of it. tail keeps all that it reads."""
    start(console, "r1", words.format("tail -c 300m /dev/zero"), memory_mb=64)
    facts = console.closed("r1")
    assert facts["memory_enforced"] == containers.may_limit("memory")
    if facts["memory_enforced"]:
        assert (facts["exit_code"], facts["oom"], facts["oom_sure"]) == (status, True, "certain")
        assert facts["message"] == "its container ran out of memory"
    assert not list((host.run_dir("r1") / "work").iterdir())


def test_a_kill_that_the_host_counted_may_have_been_for_the_containers_limit(tmp_path):
    facts = {"runtime": {"program": "false", "name": "x"}, "pid": None, "ticks": None}
    counted = (True, "likely", "killed when this host ran out of memory")
    container = Container(str(tmp_path), facts)
    assert container.judge_oom(counted, limited=False) == counted
    assert container.judge_oom(counted, limited=True)[2].startswith("killed when its container, or this host")
    assert container.judge_oom((False, "certain", ""), limited=True) == (False, "certain", "")


@pytest.mark.parametrize(("record", "oom"), [("true", (True, "certain")), ("false", (False, "likely"))])
def test_a_process_of_it_that_ran_out_of_memory_is_told_though_another_one_ended(
    host, engine, tmp_path, record, oom
):
    """As where a worker is killed and the program fails for that: what the engine has recorded counts."""
    program = tmp_path / "bin" / engine.kind
    program.parent.mkdir()
    real = shutil.which(engine.kind)
    program.write_text(f'#!/bin/sh\ncase "$*" in *OOMKilled*) echo {record};; *) exec {real} "$@";; esac\n')
    program.chmod(0o755)
    console = connect(host, engine, PATH=f"{program.parent}:{os.environ['PATH']}")
    start(console, "r1", "exit 3", memory_mb=64)
    facts = console.closed("r1")
    assert (facts["exit_code"], (facts["oom"], facts["oom_sure"])) == (3, oom)
    assert ("its container ran out of memory" in facts["message"]) is (record == "true")
    start(console, "r2", "exit 0", memory_mb=64)
    assert console.closed("r2")["oom"] is False
    wait_for(lambda: not engine.containers(), "no container to be left")


def test_it_gets_the_cpus_and_the_shared_memory_of_its_machine_type(host, console, engine):
    start(console, "r1", "df -m /dev/shm | tail -n 1; exec sleep 600", memory_mb=600, cpus=0.5)
    console.text("r1", "300")
    name = host.facts("r1")["runtime"]["name"]
    limits = engine("inspect", "--format", "{{.HostConfig.NanoCpus}} {{.HostConfig.Memory}}", name).split()
    assert limits == ["500000000", str(600 << 20)]
    console.stop("r1", 0)
    console.closed("r1")


def test_a_machine_of_no_size_has_no_limits(host, console, engine):
    start(console, "r1", "echo up; exec sleep 600", cpus=1.0)
    console.text("r1", "up")
    name = host.facts("r1")["runtime"]["name"]
    assert engine("inspect", "--format", "{{.HostConfig.NanoCpus}} {{.HostConfig.Memory}}", name).split() == [
        "0",
        "0",
    ]
    console.stop("r1", 0)
    console.closed("r1")


def test_a_login_gets_limits_only_where_they_are_delegated(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    monkeypatch.setattr(containers, "DELEGATED", str(tmp_path / "{uid}"))
    assert not containers.may_limit("memory")
    (tmp_path / "1234").write_text("cpuset memory pids\n")
    assert containers.may_limit("memory") and not containers.may_limit("cpu")


def test_a_shell_is_in_the_container(host, console, engine):
    start(console, "r1", "echo up; exec sleep 600", web_access=True, env={"FOO": "bar"})
    console.text("r1", "up")
    console.running("r1")
    shell = ShellClient(host, "r1")
    shell.type(b"echo $FOO-$TRAINYARD_RUN $TERM; exit\n")
    shell.until(lambda: b"bar-r1 xterm-256color" in shell.screen, "its answer")
    shell.until(lambda: shell.end is not None, "its end")
    shell.drop()
    console.stop("r1", 0)
    console.closed("r1")


def test_a_shell_that_ends_leaves_no_process_in_the_container(host, console, engine):
    start(console, "r1", "echo up; exec sleep 600", web_access=True)
    console.text("r1", "up")
    console.running("r1")
    shell = ShellClient(host, "r1")
    shell.type(b"echo here-$TRAINYARD_RUN\n")
    shell.until(lambda: b"here-r1" in shell.screen, "its answer")
    assert "sh" in names_in(host)
    shell.send(CLOSE, 0, b"enough")
    wait_for(lambda: "sh" not in names_in(host), "no shell to be in the container")
    shell.drop()
    console.stop("r1", 0)
    console.closed("r1")


def names_in(host):
    """The names of the processes in the PID namespace of the container."""
    space, found = os.readlink(f"/proc/{pid_in(host, 'r1')}/ns/pid"), set()
    for pid in all_processes():
        with contextlib.suppress(OSError):  # it has just ended
            if os.readlink(f"/proc/{pid}/ns/pid") == space:
                found.add(Path(f"/proc/{pid}/comm").read_text().strip())
    return found


def test_samples_count_its_processes(console, engine):
    start(console, "r1", "echo up; while true; do :; done")
    console.text("r1", "up")
    console.running("r1")
    console.hear("sample", lambda m: m["run"] == "r1" and m["cpu"] > 0.05)
    console.stop("r1", 0)
    console.closed("r1")


def test_directories_of_the_storage_are_in_the_container(host, console, engine):
    program = 'echo model > "$AIP_MODEL_DIR/m"; cat /gcs/lab/out/m; echo x > "$1"; echo "$AIP_MODEL_DIR"'
    start(
        console,
        "r1",
        program,
        "sh",
        "gs://lab/out/x",
        outputs={
            "key": "job-1",
            "buckets": {"lab": ""},
            "make": ["lab/out"],
            "variables": ["AIP_MODEL_DIR"],
        },
        env={"AIP_MODEL_DIR": "gs://lab/out"},
    )
    facts = console.closed("r1")
    assert facts["exit_code"] == 0, console.ended_log("r1")
    found = list((host.home / ".trainyard").rglob("m"))
    assert [path.read_text() for path in found] == ["model\n"]
    assert (found[0].parent / "x").read_text() == "x\n"


@pytest.mark.parametrize("user", ["ada", "1234", "ada:1234", "1234:1234"])
def test_the_user_of_an_image_writes_into_the_directories_of_its_run(host, console, engine, user):
    """Although these are closed to all but the login. What it wrote is removed with them."""
    image = engine.make_image("localhost/trainyard/ada:1", f"USER {user}")
    program = 'id -u; id -g; echo a > "$TRAINYARD_WORK/a"; echo b > "$TMPDIR/b"; echo c > /gcs/lab/out/c && echo done'
    outputs = {"key": "job-1", "buckets": {"lab": ""}, "make": ["lab/out"], "variables": []}
    start(console, "r1", program, image=image, outputs=outputs, work_key="w1")
    facts = console.closed("r1")
    assert facts["exit_code"] == 0, (console.ended_log("r1"), facts["message"])
    assert console.ended_log("r1")[0] == b"1234\n1234\ndone\n"
    assert [path.read_text() for path in (host.home / ".trainyard").rglob("c")] == ["c\n"]


SLOW = """#!/bin/sh
if [ "$1" = run ]; then touch {place}/begun; sleep 3; fi
exec {engine} "$@"
"""


def test_a_stop_while_the_engine_makes_it_waits_for_nobody(host, engine, tmp_path):
    stop_while_it_is_made(host, engine, tmp_path, SLOW)


def stop_while_it_is_made(host, engine, tmp_path, slow):
    """`slow`: a script in the place of the engine, which says that it has begun and waits."""
    place = tmp_path / "slow"
    place.mkdir()
    program = place / engine.kind
    program.write_text(slow.format(place=place, engine=shutil.which(engine.kind)))
    program.chmod(0o755)
    console = connect(host, engine, PATH=f"{place}:{host.env['PATH']}")
    start(console, "r1", "echo ran; trap '' TERM; while true; do sleep 0.1; done")
    wait_for((place / "begun").exists, "the engine to begin")
    began = time.monotonic()
    console.stop("r1", 60)
    facts = console.closed("r1")
    assert time.monotonic() - began < 20 and (facts["why"], facts["never_started"]) == ("stop", True)
    assert b"ran" not in console.ended_log("r1")[0]
    wait_for(lambda: not engine.containers(), "no container to be left")


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
