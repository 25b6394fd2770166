from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from tests.harness import hosts
from tests.harness.containers import ENGINES, IMAGE
from tests.unit.agents.runner.engines_in_turn import RUNTIMES
from tests.unit.agents.runner.protocol_client import Host, wait_for


@pytest.fixture
def host(tmp_path):
    """A home with an awkward name, which is in every path of the runner."""
    home = tmp_path / 'it\'s; $(a) "home"\n é'
    home.mkdir()
    host = Host(home)
    yield host
    host.clean()


@pytest.fixture
def console(host):
    console = host.connect()
    console.hello()
    return console


# Programs of the host, Python among them, are in each container too: so a test is the same over both runtimes.
PROGRAMS = sorted({"/usr", "/lib", "/lib64", sys.prefix, sys.base_prefix})
UUIDS = ("GPU-a", "GPU-b", "MIG-GPU-a/1/0")


@pytest.fixture(scope="session", params=RUNTIMES)
def runtime_of_runs(request, tmp_path_factory):
    """What executes the runs of a test, and the engine, if it is one."""
    if request.param == "process":
        yield request.param, None
        return
    engine = ENGINES[request.param](tmp_path_factory.mktemp(request.param))
    engine.make_image()
    yield request.param, engine
    engine.remove()


@pytest.fixture
def each_runtime(runtime_of_runs, host, tmp_path):
    """The runs of a test are executed by the host itself, or by an engine in containers, which have the GPUs of a fake
    driver as device nodes. No container is left."""
    kind, engine = runtime_of_runs
    if engine is None:
        yield kind
        return
    engine.give(host)
    host.env |= {**engine.env, "TRAINYARD_GPU_ROOT": str(fake_devices(tmp_path / "gpus"))}
    mounts = [[path, path, "ro"] for path in PROGRAMS if Path(path).exists()]
    host.runtime = {"kind": kind, "image": IMAGE, "mounts": mounts, "workdir": True}
    yield kind
    wait_for(lambda: not engine.containers(), "no container to be left")


def fake_devices(root):
    for minor, uuid in enumerate(UUIDS):
        about = root / "proc" / "driver" / "nvidia" / "gpus" / f"0000:0{minor}:00.0"
        about.mkdir(parents=True)
        (about / "information").write_text(f"GPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
        (root / "dev").mkdir(exist_ok=True)
        os.mknod(root / "dev" / f"nvidia{minor}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    return root


@pytest.fixture
def smi(host, tmp_path):
    """The harness's nvidia-smi on this host's PATH. Returns a function that changes its output."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "nvidia-smi"
    program.write_text((Path(hosts.__file__).parent / "fake_nvidia_smi.py").read_text())
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    state = tmp_path / "gpus.json"
    host.env["PATH"] = f"{programs}:{os.environ['PATH']}"
    host.env["FAKE_GPUS"] = str(state)

    def says(**changes):
        state.write_text(json.dumps({"count": 2, "host": "h", "util": 37, **changes}))

    says()
    return says
