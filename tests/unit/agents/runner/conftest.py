from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.harness import hosts
from tests.unit.agents.runner.protocol_client import Host


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
