"""Whether the Python of a reducer has numpy, as a preparation: on the host, in an environment, in an image."""

from __future__ import annotations

import json
import os

import pytest

from agents.runner.wire import encode
from tests.harness.containers import ENGINES, IMAGE

KEY = "a" * 64
# Each engine in `make test-slow`, podman in `make test`.
OTHERS = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("docker", "apptainer")]


@pytest.fixture(scope="module", params=["podman", *OTHERS])
def engine(request, tmp_path_factory):
    engine = ENGINES[request.param](tmp_path_factory.mktemp(request.param))
    engine.make_image()
    yield engine
    engine.remove()


def answer(console, python, key=KEY, **what):
    """What the host reports in the end."""
    document = json.dumps({"python": python, "env": {}, **what}).encode()
    console.write(encode({"t": "prepare", "kind": "numpy", "key": key, "asked": 1}, document))
    return console.hear("prepared", lambda m: m["key"] == key and m["state"] in ("READY", "FAILED"))


def in_image(console, engine, python, **what):
    return answer(console, python, engine=engine.kind, image=IMAGE, **what)


@pytest.mark.parametrize(
    ("python", "env", "state"),
    [
        ("true", {}, "READY"),  # it imports whatever it is told
        ("false", {}, "FAILED"),
        ("python3", {}, "FAILED"),  # the host has it, and the image has not
        ("true", {"PATH": "/nowhere"}, "FAILED"),
    ],
)
def test_an_image_is_asked_itself_with_the_variables_of_the_job(console, engine, python, env, state):
    told = in_image(console, engine, python, env=env)
    assert told["state"] == state, told["message"]
    if state == "FAILED":
        assert told["fault"] == "user"
        assert f"{python} of the image {IMAGE} cannot import it" in told["message"]
        assert "command of workerpool2" in told["message"]


def test_what_is_gone_by_now_is_no_fault_of_the_user(console, engine):
    """The start of the run is refused as unprepared then, and all of it is asked for anew."""
    told = answer(console, "true", engine=engine.kind, image="localhost/gone:1")
    assert told["state"] == "READY", told["message"]
    told = answer(console, "false", key="b" * 64, environment="c" * 64)
    assert told["state"] == "READY", told["message"]


def test_the_directory_of_the_python_that_stands_for_an_image_comes_first(console, tmp_path):
    asked = tmp_path / "python3"
    asked.write_text("#!/bin/sh\nexit 0\n")
    asked.chmod(0o755)
    told = answer(console, "python3", key="d" * 64, env={"PATH": "/nowhere"}, interpreter=str(asked))
    assert told["state"] == "READY", told["message"]


def test_nothing_is_left_of_the_container_and_no_value_is_on_a_command_line(console, engine, host, tmp_path):
    program = tmp_path / "bin" / engine.kind
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec /usr/bin/{engine.kind} "$@"\n')
    program.chmod(0o755)
    host.env["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    console = host.connect()
    console.hello(epoch=2)
    assert in_image(console, engine, "true", env={"PYTHONPATH": "/of/the/job"})["state"] == "READY"
    calls = (tmp_path / "calls").read_text()
    assert "import numpy" in calls and "/of/the/job" not in calls


def test_a_host_asks_its_own_Python_with_the_variables_of_the_job(console, tmp_path):
    (tmp_path / "numpy.py").touch()
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {os.path.realpath("/usr/bin/python3")} -S "$@"\n')
    bare.chmod(0o755)
    failed = answer(console, str(bare))
    assert (failed["state"], failed["fault"]) == ("FAILED", "user")
    assert "No module named 'numpy'" in failed["message"] and f"{bare} of this host" in failed["message"]
    assert answer(console, str(bare), key="b" * 64, env={"PYTHONPATH": str(tmp_path)})["state"] == "READY"


def test_an_engine_that_does_not_work_is_a_fault_of_the_host(console, engine, host, tmp_path):
    program = tmp_path / "bin" / engine.kind
    program.parent.mkdir()
    says = (
        'echo "FATAL:   no user namespaces here" >&2; exit 255' if engine.kind == "apptainer" else "exit 125"
    )
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    host.env["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    console = host.connect()
    console.hello(epoch=2)
    broken = in_image(console, engine, "true")
    assert (broken["state"], broken["fault"]) == ("FAILED", "host"), broken
