"""tools/install looks for a Redis server again until there is one: its advice has to work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = (
    "sh",
    "cat",
    "cksum",
    "dirname",
    "env",
    "find",
    "sort",
    "mkdir",
    "mktemp",
    "rm",
    "tail",
    "touch",
    "chmod",
)
# The Python of .venv: pip has no binary of a server for this machine.
PIP = """#!/bin/sh
echo "$*" >>calls
case "$*" in
*broker.txt*) exit 1 ;;
esac
"""


@pytest.fixture
def machine(tmp_path):
    """A machine with a copy of tools/install, without a Redis server, a compiler and a network."""
    shutil.copytree(ROOT / "tools/requirements", tmp_path / "tools/requirements")
    shutil.copy(ROOT / "tools/install", tmp_path / "tools/install")
    for name in ("pyproject.toml", "package.json", "package-lock.json"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("console/settings.py", "console/runtime/catalogues.py"):
        shutil.copy(ROOT / name, program(tmp_path, name))
    shutil.copytree(ROOT / "console/runtime/static_files", tmp_path / "console/runtime/static_files")
    for name in ("node_modules", "static", "staticfiles", "locale"):
        (tmp_path / name).mkdir()
    for name in NEEDED:
        program(tmp_path, f"bin/{name}").symlink_to(shutil.which(name))
    add(tmp_path, "bin/npm")
    add(tmp_path, ".venv/bin/python", PIP)
    return tmp_path


def program(place, name):
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def add(place, name, text="#!/bin/sh\n"):
    path = program(place, name)
    path.write_text(text)
    path.chmod(0o755)


def install(place, **environment):
    """Returns what was said, and how often a server was asked for."""
    (place / "calls").write_text("")
    environment = {"PATH": str(place / "bin"), "PYTHON": sys.executable, "HOME": os.devnull, **environment}
    words = ["tools/install", "run"]
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr, (place / "calls").read_text().count("broker")


def test_the_advice_to_install_a_server_works_at_the_next_start(machine):
    """A compiler is no reason to build one: what pip could build is not maintained."""
    add(machine, "bin/cc")
    add(machine, "bin/make")
    for _ in range(2):
        said, asked = install(machine)
        assert "apk add valkey" in said and asked
    add(machine, "bin/redis-server")
    install(machine)
    assert install(machine) == ("", 0)


def test_a_server_of_the_machine_is_enough_as_long_as_it_is_there(machine):
    add(machine, "bin/valkey-server")
    install(machine)
    assert install(machine) == ("", 0)
    (machine / "bin/valkey-server").unlink()
    assert "no redis-server here" in install(machine)[0]


def test_it_is_tried_once_if_another_server_is_named(machine):
    install(machine, REDIS_URL="redis://broker:6379/0")
    assert install(machine, REDIS_URL="redis://broker:6379/0") == ("", 0)
