"""The tools of a shell: asked for when they are not here, on `PATH` and for pip when they are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agents.runner.shells.tools import ToolsMissing, add_tools
from agents.runner.wire import SHELL_PREFACE
from agents.ssh import tools
from tests.unit.agents.runner.protocol_client import PYTHON, RUNNER
from tests.unit.agents.runner.shell_client import ShellClient

MACHINE = os.uname().machine
SHA = "a" * 64
PY_SPY = Path(sys.prefix) / "bin" / "py-spy"


@pytest.fixture
def running(host):
    console = host.connect()
    console.hello()
    console.start("r1", ["sleep", "600"], web_access=True)
    console.running("r1")
    yield
    console.stop("r1")
    console.closed("r1")


def test_a_shell_asks_for_tools_that_are_not_on_the_host(host, running):
    request = {"deployment": "dep", "run": "r1", "shell": "k", "new": {"keep_s": 0}, "tools": {MACHINE: SHA}}
    done = subprocess.run(
        [PYTHON, str(RUNNER), "shell"], input=json.dumps(request).encode() + b"\n", env=host.env,
        stdout=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    assert json.loads(done.stdout[len(SHELL_PREFACE) :])["missing"] == MACHINE


@pytest.mark.parametrize("offered", [None, {}, {"vax": SHA}, {MACHINE: "../x"}, {MACHINE: 7}, "x"])
def test_a_shell_works_without_tools(host, running, offered):
    client = ShellClient(host, settings={"keep_s": 0}, tools=offered)
    client.type(b'T="${PATH##*:}"; echo "path=$T=e""nd"; touch "$T/x" && echo writ""ten; echo o""ver\n')
    assert b"trainyard/tools" not in client.seen(b"=end\r\n")
    client.drop()


def test_tools_come_after_the_programs_of_the_job_and_are_there_for_pip(tmp_path):
    (tmp_path / SHA / "bin").mkdir(parents=True)
    env = {"PATH": "/job/bin:/usr/bin"}
    add_tools(env, str(tmp_path), {MACHINE: SHA})
    assert env == {
        "PATH": f"/job/bin:/usr/bin:{tmp_path}/{SHA}/bin",
        "PIP_FIND_LINKS": f"{tmp_path}/{SHA}/wheels",
    }
    env = {"PATH": "/bin", "PIP_FIND_LINKS": "/own"}
    add_tools(env, str(tmp_path), {MACHINE: SHA})
    assert env["PIP_FIND_LINKS"] == f"/own {tmp_path}/{SHA}/wheels"
    with pytest.raises(ToolsMissing):
        add_tools({"PATH": ""}, str(tmp_path), {MACHINE: "b" * 64})


def put(home, wheel, data=None):
    """Run the program that the console sends, as the host's python3 does."""
    data = wheel.path.read_bytes() if data is None else data
    head = json.dumps({"sha": wheel.sha, "size": wheel.path.stat().st_size, "name": wheel.name}).encode()
    return subprocess.run(
        [PYTHON, "-c", "import sys; exec(eval(sys.stdin.buffer.readline()))"],
        input=repr(tools.PUT_PROGRAM).encode() + b"\n" + head + b"\n" + data, cwd=home,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip


def test_there_is_a_wheel_for_each_kind_of_processor():
    assert set(tools.wheels()) == {"x86_64", "aarch64"}
    assert tools.wheels()["aarch64"].name == "py_spy-0.4.1-py2.py3-none-linux_aarch64.whl"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_program_puts_the_tool_whole_or_not_at_all(tmp_path, machine):
    wheel = tools.wheels()[machine]
    data = wheel.path.read_bytes()
    damaged = put(tmp_path, wheel, data[:-1] + b"x")
    assert damaged.returncode != 0 and b"damaged" in damaged.stderr
    place = tmp_path / ".trainyard" / "tools" / wheel.sha
    assert not place.exists()
    for _ in range(2):
        done = put(tmp_path, wheel)
        assert f"TRAINYARD-TOOL {wheel.sha}".encode() in done.stdout, done.stderr
    assert (place / "wheels" / wheel.name).read_bytes() == data
    program = place / "bin" / "py-spy"
    assert os.access(program, os.X_OK) and b"ELF" in program.read_bytes()[:4]
    assert os.listdir(place.parent) == [wheel.sha], "no draft is left"
    if machine == MACHINE:
        version = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=60, check=True
        )
        assert version.stdout == "py-spy 0.4.1\n"


def test_a_home_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / ".trainyard").write_text("in the way")
    done = put(tmp_path, tools.wheels()[MACHINE])
    assert done.returncode != 0 and b"cannot be written" in done.stderr


STANDS = """
import time
def stands_in_the_container():
    print("stands", flush=True)
    while True: time.sleep(3600)
stands_in_the_container()
"""


@pytest.fixture
def put_later(host):
    """The console puts the tool when a shell asks for it: the container is there before."""

    def put():
        place = host.home / ".trainyard" / "tools" / SHA / "bin"
        place.mkdir(parents=True)
        shutil.copy(PY_SPY, place / "py-spy")

    return put


def test_py_spy_is_at_hand_in_a_shell_in_a_container(each_runtime, console, host, put_later):
    """The image has none. It is found last, and cannot be written to from there."""
    console.start(
        "r1", ["sh", "-c", f"exec '{PYTHON}' -c \"$PROGRAM\""], web_access=True, env={"PROGRAM": STANDS}
    )
    console.text("r1", "stands")
    put_later()
    client = ShellClient(host, settings={"keep_s": 0}, tools={MACHINE: SHA})
    client.type(b"py-spy dump --pid $TRAINYARD_PID | cat; echo dum''ped\n")
    assert b"stands_in_the_container (<string>:5)" in client.seen(b"dumped\r\n")
    client.type(b'T="${PATH##*:}"; echo "path=$T=e""nd"; touch "$T/x" && echo writ""ten; echo o""ver\n')
    seen = client.seen(b"over\r\n")
    assert f"/.trainyard/tools/{SHA}/bin=end".encode() in seen.replace(b"\r\n", b"")
    assert (b"written" in seen) is (each_runtime == "process")
    client.drop()
    console.stop("r1", 0)
    console.closed("r1")


def test_a_run_without_shells_has_no_mount_for_them(each_runtime, console, host):
    where = host.home / ".trainyard" / "tools"
    console.start(
        "r1", ["sh", "-c", 'test -d "$WHERE" && echo is-there; echo looked'], env={"WHERE": str(where)}
    )
    assert "is-there" not in console.text("r1", "looked")
    console.closed("r1")
