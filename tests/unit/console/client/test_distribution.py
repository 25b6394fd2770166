"""The wheel: pip installs it alone, the oldest Python runs it, and the command is one with that of the server."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from console.client import VERSION, build_wheel, main
from tests.harness.command_line import OLDEST, CommandLine, python

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    return CommandLine(tmp_path_factory.mktemp("client"))


def test_the_version_is_that_of_the_server_and_the_project_file_agrees():
    server = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    client = tomllib.loads((ROOT / "console/client/pyproject.toml").read_text())["project"]
    assert server["version"] == VERSION
    assert (client["name"], client["requires-python"]) == (build_wheel.NAME, f">={OLDEST}")
    assert client["scripts"] == {"trainyard": "trainyard_client.main:main"} and client["dependencies"] == []


def test_the_same_files_give_the_same_wheel():
    assert build_wheel.wheel() == build_wheel.wheel()


def test_pip_installs_it_alone_with_the_oldest_python(tmp_path):
    """From the folder, as `pip install console/client` does: pip builds it by its own backend, without a network."""
    subprocess.run([python(), "-m", "venv", tmp_path / "venv"], check=True)
    install = ["install", "--no-index", "--disable-pip-version-check", "--quiet"]
    subprocess.run([tmp_path / "venv/bin/pip", *install, ROOT / "console/client"], check=True)
    there = [tmp_path / "venv/bin/trainyard", "--version"]
    assert (
        subprocess.run(there, check=True, capture_output=True, text=True).stdout == f"trainyard {VERSION}\n"
    )
    listed = [tmp_path / "venv/bin/pip", "list", "--format=freeze", "--disable-pip-version-check"]
    names = set(re.findall(r"^([\w-]+)==", subprocess.check_output(listed, text=True), re.MULTILINE))
    assert {name.replace("_", "-") for name in names} - {"pip", "setuptools"} == {"trainyard-client"}


def test_each_verb_explains_itself(command):
    listed = command.run("--help").stdout
    assert all(verb in listed for verb in main.VERBS)
    for verb, (_, what) in main.VERBS.items():
        shown = command.run(verb, "--help").stdout
        assert f"usage: trainyard {verb}" in shown and what.split(";")[0][:20].lower() in shown.lower()


@pytest.mark.parametrize("words", [("up",), ("user", "add", "ada"), ("quota", "set", "running", "1")])
def test_a_verb_of_the_server_says_where_it_runs(command, words):
    done = command.run(*words, check=False)
    assert done.returncode == 2 and "runs on the console's machine" in done.stderr


def test_a_verb_that_nobody_has(command):
    done = command.run("fly", check=False)
    assert done.returncode == 2 and "there is no verb 'fly'" in done.stderr


def test_beside_the_server_either_command_does_all(command):
    """The client, installed last, owns the command; the server's verbs are there all the same, and the other way."""
    command = CommandLine(command.folder, sys.executable)
    beside = {"PYTHONPATH": f"{command.folder / 'installed'}:{ROOT}"}
    assert "--accept-first-key" in command.run("host", "add", "--help", **beside).stdout
    assert "(not installed here)" not in command.run("--help", **beside).stdout
    words = [sys.executable, "-m", "console.cli", "jobs", "--help"]
    assert "--mine" in subprocess.check_output(words, text=True, cwd=ROOT)


def test_a_verb_of_the_client_loads_neither_django_nor_each_other():
    code = "import sys\nfrom console import cli\n"
    code += "try:\n    cli.main(['jobs', '--limit', 'x'])\nexcept SystemExit:\n    print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    seen = done.stdout.split()
    assert "console.client.verbs.jobs" in seen and "console.client.verbs.submit" not in seen
    assert not {"django", "celery", "paramiko", "jobs", "asyncio"} & set(seen)


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_the_completion_has_every_verb_and_its_options(command, kind):
    text = command.run("completion", kind).stdout
    assert all(verb in text for verb in main.VERBS) and "worker-pool-spec" in text
    if kind == "bash":
        script = (
            f'{text}\nCOMP_WORDS=(trainyard logs --fo) COMP_CWORD=2; _trainyard; echo "${{COMPREPLY[@]}}"'
        )
        assert subprocess.check_output(["bash", "-c", script], text=True) == "--follow\n"
