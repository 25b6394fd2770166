"""Runs in containers of a real Apptainer: the contract of all engines, and what is Apptainer's own."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from agents.runner.processes import all_processes
from agents.runner.runtimes.apptainer_containers import ApptainerContainer, is_of_engine, shell_in
from agents.runner.runtimes.apptainer_options import BEGUN, SCRIPT
from agents.runner.shells.frames import CLOSE
from tests.harness.containers import Apptainer
from tests.unit.agents.runner.protocol_client import wait_for

# The same tests as over the other engines, with the fixtures of this module.
from tests.unit.agents.runner.runtimes.container_runs import (
    connect,
    is_alive,
    start,
    stop_while_it_is_made,
)
from tests.unit.agents.runner.runtimes.test_container_kills import (  # noqa: F401
    test_a_claim_whose_keeper_died_while_the_container_was_made_leaves_none,
    test_it_does_not_start_twice,
    test_the_container_is_known_on_disk_before_the_engine_begins,
)
from tests.unit.agents.runner.runtimes.test_container_limits import (  # noqa: F401
    test_samples_count_its_processes,
)
from tests.unit.agents.runner.runtimes.test_container_shells import (  # noqa: F401
    test_a_shell_is_in_the_container,
)
from tests.unit.agents.runner.runtimes.test_container_stops import (  # noqa: F401
    test_a_stop_is_heard_by_the_program,
    test_one_that_ignores_the_stop_is_killed_after_the_grace,
)
from tests.unit.agents.runner.runtimes.test_containers import (  # noqa: F401
    test_a_host_without_the_engine_refuses,
    test_a_program_that_does_not_exist_is_no_start,
    test_an_image_that_is_not_here_is_not_prepared,
    test_command_replaces_entrypoint_and_args_replace_cmd,
    test_directories_of_the_storage_are_in_the_container,
    test_it_runs_prints_and_ends_with_its_status,
    test_the_work_directory_and_tmpdir_are_the_hosts,
    test_variables_with_names_that_no_shell_knows_are_in_the_container,
    test_with_code_it_starts_in_the_work_directory,
)
from tests.unit.agents.runner.runtimes.test_packages import (  # noqa: F401
    test_a_stop_while_packages_are_installed_is_heard,
    test_an_image_without_python_is_refused_in_words,
    test_the_python_of_the_image_installs_the_packages_and_runs_their_module,
    test_what_cannot_be_had_is_said_in_words_with_the_cure,
)
from tests.unit.agents.runner.shell_client import ShellClient


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    engine = Apptainer(tmp_path_factory.mktemp("apptainer"))
    engine.make_image()
    yield engine
    engine.remove()


def variables(pid):
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def parent_of(pid):
    return all_processes()[pid].parent


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR1])
def test_the_signal_that_ended_the_program_is_told(console, engine, signum):
    start(console, "r1", f"kill -{int(signum)} $$")
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["exit_signal"], facts["why"]) == (None, signum, "exit")
    assert facts["started_at"] and not facts["never_started"]


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("exit 255", 255),
        ("echo 'FATAL: mine'; exit 3", 3),
        ("echo 'FATAL: no data'; exit 1", 1),
        ("echo 'FATAL:   container creation failed: mine'; exit 255", 255),
        ("echo 'ERROR  : while I worked'; exit 1", 1),
    ],
)
def test_a_program_that_ends_as_the_engine_would_has_run(console, engine, program, status):
    start(console, "r1", program)
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["never_started"], facts["refusal"]) == (status, False, None)


def test_its_first_process_is_the_program(host, console, engine):
    start(console, "r1", "echo up; exec sleep 600")
    console.text("r1", "up")
    facts = console.running("r1")
    assert b"sleep" in Path(f"/proc/{facts['pid']}/cmdline").read_bytes()
    client = parent_of(facts["pid"])
    assert is_of_engine(client) and parent_of(client) in host.keepers("r1")
    console.stop("r1", 0)
    console.closed("r1")


def test_a_program_that_cannot_be_executed_is_told_in_the_engines_words(console, engine):
    start(console, "r1", runtime={"entrypoint": ["/etc/passwd"], "args": []})
    facts = console.closed("r1")
    assert (facts["refusal"], facts["message"]) == ("exec_failed", "permission denied")


def test_a_container_that_cannot_be_made_is_told_in_the_engines_words(console, engine):
    start(console, "r1", "true", runtime={"mounts": [["/no/such/directory", "/x", "ro"]]})
    facts = console.closed("r1")
    assert facts["refusal"] == "runtime" and "/no/such/directory doesn't exist" in facts["message"]
    assert facts["never_started"] is True


@pytest.mark.parametrize(
    ("begun", "words", "refused"),
    [
        (False, "FATAL:   container creation failed: no overlay", "runtime"),
        (False, "FATAL: no data", None),
        (True, "FATAL:   permission denied", "exec_failed"),
        (True, "FATAL:   container creation failed: mine", None),
        (True, "FATAL:   no permission denied", None),
    ],
)
def test_an_end_before_anybody_saw_the_program_is_its_own_if_its_container_was_made(
    tmp_path, begun, words, refused
):
    (tmp_path / "log").write_text(f"\x1b[31m{words}\x1b[0m\n")
    (tmp_path / BEGUN).write_bytes(SCRIPT + b"\n" * begun)
    known = {"program": "apptainer", "name": "x", "kind": "apptainer"}
    container = ApptainerContainer(str(tmp_path), {"runtime": known, "pid": 0, "ticks": 0})
    found = container.end_of(7, 7, os.CLD_EXITED, 255)
    assert found == (None if refused else (os.CLD_EXITED, 255))
    assert not refused or container.refusal(-1)[0] == refused


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("nothing", '"nothing": executable file not found in $PATH'),
        ("/nothing", "stat /nothing: no such file or directory"),
        ("/etc", "is a directory"),
    ],
)
def test_no_program_of_that_name_is_told_in_the_engines_words(console, engine, program, words):
    start(console, "r1", runtime={"entrypoint": [program], "args": []})
    facts = console.closed("r1")
    assert (facts["refusal"], facts["message"], facts["never_started"]) == ("exec_failed", words, True)


def test_no_value_of_a_variable_is_on_a_command_line(host, console, engine):
    env = {
        "TOKEN": "s3cret-1",
        "HOME": "/s3cret-2",
        "LD_PRELOAD": "",
        "APPTAINER_BIND": "/s3cret-3",
        "PATH": "/bin:/s3",
    }
    start(console, "r1", "echo up; exec sleep 600", env=env)
    console.text("r1", "up")
    pid = console.running("r1")["pid"]
    lines = b""
    for each in (pid, parent_of(pid)):
        lines += Path(f"/proc/{each}/cmdline").read_bytes()
    assert b"s3cret" not in lines
    assert {f"{name}={value}".encode() for name, value in env.items()} <= set(variables(pid))
    assert not [path for path in host.run_dir("r1").iterdir() if path.name == "container.env"]
    console.stop("r1", 0)
    console.closed("r1")


def test_words_and_variables_are_no_shells(console, engine):
    runtime = {"entrypoint": ["echo", "$(id)", "`id`", "$HOME", "a  b", '"'], "args": []}
    start(console, "r1", runtime=runtime)
    console.closed("r1")
    assert console.ended_log("r1")[0] == b'$(id) `id` $HOME a  b "\n'
    start(console, "r2", 'echo "$FOO"', env={"FOO": "$(id) `id` $HOME \\"})
    console.closed("r2")
    assert console.ended_log("r2")[0] == b"$(id) `id` $HOME \\\n"


def test_what_an_image_says_of_its_variables_and_its_directory_counts(console, engine):
    changes = ("ENV FOO=$HOME is (no) shell", "ENV BAR=image", "ENV PATH=/x:/bin", "WORKDIR /etc", "USER ada")
    image = engine.make_image("localhost/trainyard/env:1", *changes)
    start(console, "r1", 'pwd; echo "$FOO"; echo "$BAR $PATH"; id -u', image=image, env={"BAR": "job"})
    facts = console.closed("r1")
    expected = f"/etc\n$HOME is (no) shell\njob /x:/bin\n{os.getuid()}\n"
    assert console.ended_log("r1")[0].decode() == expected, facts["message"]


def test_the_directories_of_the_host_are_not_in_it_and_the_image_stays_as_it_is(host, console, engine):
    (host.home / "mine").write_text("x")
    program = (
        'ls -a "$OTHER"; touch /bin/new /etc/new && echo written; echo x > /tmp/x; cat "$TMPDIR/x"; echo ~'
    )
    start(console, "r1", program, env={"OTHER": str(host.home)})
    work = console.closed("r1")["work"]
    log = console.ended_log("r1")[0].decode()
    assert "mine" not in log.split("written")[0] and log.endswith(f"written\nx\n{work}\n")
    start(console, "r2", "ls /bin /etc; ls -a /tmp")
    console.closed("r2")
    assert not {"new", "x"} & set(console.ended_log("r2")[0].decode().split())


def test_a_home_that_the_engine_would_read_as_two_is_refused(console, engine):
    start(console, "r1", "true", env={"HOME": "/root:/etc"})
    facts = console.closed("r1")
    assert (facts["refusal"], facts["never_started"]) == ("bad_order", True) and "colon" in facts["message"]


def test_it_has_no_pid_namespace_and_says_so(console, engine):
    start(console, "r1", "true", pid_namespace=True)
    facts = console.closed("r1")
    assert "Apptainer" in facts["namespace_refused"] and facts["containment"] in engine.containments


def test_shared_memory_is_that_of_the_host(console, engine):
    start(console, "r1", "df -k /dev/shm | tail -n 1")
    console.closed("r1")
    size = os.statvfs("/dev/shm")
    assert str(size.f_blocks * size.f_frsize >> 10) in console.ended_log("r1")[0].decode()


def test_a_stop_is_for_the_program_and_not_for_the_engines_process_which_would_pass_it_on(console, engine):
    start(console, "r1", "trap 'echo told' TERM; echo up; while [ ! -e \"$TRAINYARD_WORK/go\" ]; do :; done")
    console.text("r1", "up")
    facts = console.running("r1")
    client = parent_of(facts["pid"])
    os.kill(client, signal.SIGSTOP)
    console.stop("r1", 30)
    console.text("r1", "told")
    assert all_processes()[client].state == "T", "whoever is told of a stop is continued too"
    os.kill(client, signal.SIGCONT)
    (Path(facts["work"]) / "go").touch()
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["why"]) == (0, "stop")
    assert console.ended_log("r1")[0] == b"up\ntold\n"


def test_a_stop_reaches_processes_that_their_parent_has_left(console, engine):
    daemon = "trap 'echo bye > \"$TRAINYARD_WORK/bye\"; exit' TERM; echo up; while true; do sleep 0.1; done"
    start(console, "r1", f"(({daemon}) &); trap '' TERM; sleep 2; sleep 1")
    console.text("r1", "up")
    facts = console.running("r1")
    console.stop("r1", 30)
    console.closed("r1")
    assert (Path(facts["work"]) / "bye").read_text() == "bye\n"


def test_its_pid_is_found_though_its_parent_is_stopped_and_all_end(host, console, engine):
    start(console, "r1", "echo up; exec sleep 600")
    console.text("r1", "up")
    os.kill(parent_of(console.running("r1")["pid"]), signal.SIGSTOP)
    console.stop("r1", 0.3)
    assert console.closed("r1")["why"] == "stop"


@pytest.mark.parametrize("victim", ["inner", "outer", "serve"])
def test_one_process_of_ours_is_killed_and_the_program_goes_on(host, console, engine, victim):
    program = 'echo up; while [ ! -e "$TRAINYARD_WORK/go" ]; do sleep 0.05; done; echo bye; exit 9'
    start(console, "r1", program)
    console.text("r1", "up")
    console.running("r1")
    outer, inner = host.keepers("r1")
    pid = {"outer": outer, "inner": inner, "serve": console.process.pid}[victim]
    os.kill(pid, signal.SIGKILL)
    if victim == "serve":
        console.process.wait()
        console = connect(host, engine, epoch=2)
        console.say("pull", run="r1", **{"from": 0, "raw": False})
    wait_for(lambda: not is_alive(pid), "its end")
    (Path(host.facts("r1")["work"]) / "go").touch()
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["why"]) == (9, "exit"), facts
    assert console.ended_log("r1")[0] == b"up\nbye\n"


def test_the_engines_process_takes_the_program_with_it_and_nothing_is_left(console, engine):
    start(console, "r1", "sleep 600 & echo up; while true; do sleep 0.1; done")
    console.text("r1", "up")
    facts = console.running("r1")
    os.kill(parent_of(facts["pid"]), signal.SIGKILL)
    closed = console.closed("r1")
    assert (closed["exit_signal"], closed["why"]) == (signal.SIGKILL, "exit") and not is_alive(facts["pid"])


def test_all_keepers_are_killed_and_nothing_is_left(host, console, engine):
    start(console, "r1", "echo up; trap '' TERM; while true; do sleep 0.1; done")
    console.text("r1", "up")
    facts = console.running("r1")
    for pid in host.keepers("r1"):
        os.kill(pid, signal.SIGKILL)
    assert console.closed("r1")["why"] == "lost" and not is_alive(facts["pid"])


@pytest.mark.parametrize(("words", "status"), [("exec {}", None), ("{}; sleep 1; exit 3", None)])
def test_too_much_memory_is_told_as_such(console, engine, words, status):
    """The limit is that of the run's own cgroup, as for a program of the host."""
    start(console, "r1", words.format("tail -c 300m /dev/zero"), memory_mb=64)
    facts = console.closed("r1")
    if facts["memory_enforced"]:
        assert (facts["oom"], facts["oom_sure"]) == (True, "certain") and "for memory" in facts["message"]


def test_a_shell_that_ends_leaves_no_process_and_has_the_files_of_the_container(host, console, engine):
    start(console, "r1", "touch /made-here; echo up; exec sleep 600", web_access=True, env={"HOME": "/tmp"})
    console.text("r1", "up")
    first = console.running("r1")["pid"]
    shell = ShellClient(host, "r1")
    shell.type(b"ls / | head -n 30; echo $HOME-here-$TRAINYARD_RUN\n")
    shell.until(lambda: b"made-here" in shell.screen and b"/tmp-here-r1" in shell.screen, "its answer")

    def inside():
        space = os.readlink(f"/proc/{first}/ns/mnt")
        return [pid for pid in all_processes() if pid != first and _space(pid) == space]

    assert inside()
    shell.send(CLOSE, 0, b"enough")
    wait_for(lambda: not inside(), "no shell to be in the container")
    shell.drop()
    console.stop("r1", 0)
    console.closed("r1")


def test_a_shell_has_the_variables_of_the_linker_and_the_hosts_program_has_not(host, console, engine):
    env = {"LD_LIBRARY_PATH": '/its own/"lib" $HOME', "LD_PRELOAD": "/no/such.so", "PATH": "/bin:/nowhere"}
    start(console, "r1", "echo up; exec sleep 600", web_access=True, env=env)
    console.text("r1", "up")
    facts = console.running("r1")
    argv, given = shell_in(facts, ["env"], {"TERM": "dumb"})
    assert os.path.isabs(argv[0]) and not [name for name in given if name.startswith("LD_")]
    seen = subprocess.run(argv, env=given, capture_output=True, text=True, check=True).stdout.splitlines()
    env["LD_LIBRARY_PATH"] += ":/.singularity.d/libs"  # where the engine puts NVIDIA's
    assert {f"{name}={value}" for name, value in {**env, "TERM": "dumb"}.items()} <= set(seen)
    assert not [line for line in seen if "WAITING" in line]
    console.stop("r1", 0)
    console.closed("r1")


def _space(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return None


def test_it_sees_the_gpus_as_a_program_of_the_host_does(console, engine):
    start(console, "r1", 'echo "[$CUDA_VISIBLE_DEVICES] $CUDA_DEVICE_ORDER"')
    console.closed("r1")
    assert console.ended_log("r1")[0] == b"[] PCI_BUS_ID\n"


SLOW = """#!/bin/sh
touch {place}/begun; sleep 3
exec {engine} "$@"
"""


def test_a_stop_while_the_engine_makes_it_waits_for_nobody(host, engine, tmp_path):
    stop_while_it_is_made(host, engine, tmp_path, SLOW)


def test_an_image_in_use_is_not_thrown_away(host, console, engine):
    start(console, "r1", "echo up; exec sleep 600")
    console.text("r1", "up")
    key = host.facts("r1")["runtime"]["root"].split("/")[-2]
    lock = host.home / ".trainyard" / "dep" / "cache" / "images" / f"{key}.lock"
    taken = subprocess.run(["flock", "--nonblock", "--exclusive", str(lock), "true"], check=False)
    assert taken.returncode == 1
    console.stop("r1", 0)
    console.closed("r1")
    wait_for(
        lambda: subprocess.run(["flock", "-nx", str(lock), "true"], check=False).returncode == 0, "its lock"
    )


@pytest.mark.parametrize(("of_image", "found"), [("", "{module}"), ("/of-image", "/of-image:{module}")])
def test_a_program_finds_hypertune_behind_what_its_image_has(host, console, engine, of_image, found):
    name = f"localhost/lab/trial:{len(of_image)}"
    image = engine.make_image(name, *([f"ENV PYTHONPATH={of_image}"] if of_image else []))
    module = host.home / ".trainyard" / "dep" / "python"
    look = 'echo "$PYTHONPATH"; head -n 1 "${PYTHONPATH##*:}/hypertune.py" | wc -l'
    start(console, "r1", look, image=image)
    console.closed("r1")
    assert console.ended_log("r1")[0].decode() == f"{found.format(module=module)}\n1\n"
