"""Runs in containers of a real podman and a real Docker: what a run promises without one, it promises with one.

Those of Apptainer are in test_apptainer.py: most of these tests, and of test_container_*.py, are run there too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from agents.runner.cache.store import Cache
from agents.runner.home import Home
from agents.runner.runtimes.image_user import python_path_of_image, user_of_image
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.runtimes.container_runs import connect, pid_in, start


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


def test_a_value_with_line_breaks_reaches_it_whatever_its_name_begins_with(console, engine):
    """As the key of a service account has, in the form in which it is handed out."""
    names = ("GOOGLE_CREDENTIALS", "STORAGE_KEY", "REGISTRY_CA", "CONTAINER_SPEC")
    runtime = {"entrypoint": ["cat", "/proc/self/environ"], "args": []}
    start(console, "r1", runtime=runtime, env=dict.fromkeys(names, '{\n "type": 1\n}') | {"GOGC": "50"})
    console.closed("r1")
    found = set(console.ended_log("r1")[0].split(b"\0"))
    assert {f'{name}={{\n "type": 1\n}}'.encode() for name in names} | {b"GOGC=50"} <= found


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


def test_an_image_that_is_named_by_its_id_is_asked_for_its_user_and_variables_once(host, engine, tmp_path):
    """The engine needs about as long to describe an image as to start a container."""
    image = engine.make_image("localhost/trainyard/ada:1", "USER ada")
    asked, program = tmp_path / "asked", tmp_path / "bin" / engine.kind
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >>{asked}\nexec {shutil.which(engine.kind)} "$@"\n')
    program.chmod(0o755)
    console = connect(host, engine, PATH=f"{program.parent}:{host.env['PATH']}")
    known = engine("image", "inspect", "--format", "{{.Id}}", image).strip().rpartition(":")[2]
    kept = host.home / ".trainyard" / "dep" / "cache" / "users" / known
    for run, times in (("r1", 2), ("r2", 2), ("r3", 4)):
        if run == "r3":
            kept.write_text('{"user": [0')  # damaged: it is asked for again
        start(console, run, "id -u; id -g", image=known)
        facts = console.closed(run)
        assert console.ended_log(run)[0] == b"1234\n1234\n", facts["message"]
        assert asked.read_text().count("image inspect") == times
    wait_for(lambda: not engine.containers(), "no container to be left")


def test_an_engine_that_does_not_answer_is_asked_again(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    answer, program, image = tmp_path / "answer", tmp_path / "engine", "a" * 64
    program.write_text(f"#!/bin/sh\nexec cat {answer}\n")
    program.chmod(0o755)
    cache = Cache(Home("dep"))
    os.makedirs(Home("dep").base)
    assert user_of_image(cache, str(program), image, "r1", str(tmp_path)) == (0, 0)
    answer.write_text("77:78\n")
    assert user_of_image(cache, str(program), image, "r2", str(tmp_path)) == (77, 78)
    answer.write_text("1:1\n")
    assert user_of_image(cache, str(program), image, "r3", str(tmp_path)) == (77, 78)
    assert user_of_image(cache, str(program), "a/name:1", "r4", str(tmp_path)) == (1, 1)


@pytest.mark.parametrize(
    ("of_image", "of_job", "found"),
    [
        ("", None, "{module}"),
        ("/of-image", None, "/of-image:{module}"),
        ("/of-image", "/of-job", "/of-job:{module}"),
    ],
)
def test_every_program_finds_hypertune_behind_all_that_its_image_and_job_have(
    host, console, engine, of_image, of_job, found
):
    image = engine.make_image("localhost/lab/trial:1", *([f"ENV PYTHONPATH={of_image}"] if of_image else []))
    env = {"PYTHONPATH": of_job} if of_job else {}
    module = host.home / ".trainyard" / "dep" / "python"
    look = 'echo "$PYTHONPATH"; head -n 1 "${PYTHONPATH##*:}/hypertune.py" | wc -l'
    start(console, "r1", look, image=image, env=env)
    console.closed("r1")
    assert console.ended_log("r1")[0].decode() == f"{found.format(module=module)}\n1\n"


def test_an_image_of_which_nothing_can_be_learned_keeps_its_own_variable(tmp_path, monkeypatch):
    """Of an engine that does not answer. It is asked again, and what it says then is kept."""
    monkeypatch.setenv("HOME", str(tmp_path))
    answer, program = tmp_path / "answer", tmp_path / "engine"
    program.write_text(f"#!/bin/sh\nexec cat {answer}\n")
    program.chmod(0o755)
    os.makedirs(Home("dep").base)
    known = {"program": str(program), "image": "a" * 64}
    for said, found in (
        (None, None),
        ("A=b\nPYTHONPATH=/of:/image\n", "/of:/image"),
        ("A=b\n", "/of:/image"),
    ):
        if said:
            answer.write_text(said)
        assert python_path_of_image(Cache(Home("dep")), known) == found
    assert python_path_of_image(Cache(Home("dep")), {**known, "image": "a/name:1"}) == ""
