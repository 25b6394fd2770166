"""The mode `files`: only below the work directory of a run, no link is followed, nothing is waited for."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from agents.runner.wire import FILES_PREFACE
from tests.unit.agents.runner.protocol_client import PYTHON, RUNNER

GRAPH = b"<svg>" + bytes(range(256)) * 5000


@pytest.fixture
def work(host):
    """The work directory of a run that runs; beside it lies what is none of the run's."""
    console = host.connect()
    console.hello()
    console.start("r1", ["sh", "-c", "pwd; exec sleep 600"], web_access=True)
    facts = console.running("r1")
    place = (
        facts["work"] if "work" in facts else json.loads((host.run("r1") / "facts.json").read_text())["work"]
    )
    with open(os.path.join(place, "flame.svg"), "wb") as file:
        file.write(GRAPH)
    os.makedirs(os.path.join(place, "out", "deep"))
    os.symlink("/etc/passwd", os.path.join(place, "link"))
    os.symlink("/etc", os.path.join(place, "out", "etc"))
    os.mkfifo(os.path.join(place, "pipe"))
    with open(os.fsencode(place) + b"/no-text-\xff", "wb"):
        pass
    yield place
    console.stop("r1")
    console.closed("r1")


@pytest.fixture
def ask(host):
    def ask(op, path="", run="r1"):
        line = json.dumps({"deployment": "dep", "run": run, "op": op, "path": path}).encode() + b"\n"
        done = subprocess.run(
            [PYTHON, str(RUNNER), "files"],
            input=line,
            env=host.env,
            stdout=subprocess.PIPE,
            timeout=60,
            check=False,
        )
        assert done.stdout.startswith(FILES_PREFACE)
        head, _, rest = done.stdout[len(FILES_PREFACE) :].partition(b"\n")
        return json.loads(head), rest

    return ask


def test_a_directory_is_listed_and_a_file_is_sent_whole(work, ask):
    answer, _ = ask("list")
    found = {entry["name"]: (entry["kind"], entry["size"]) for entry in answer["entries"]}
    assert found["flame.svg"] == ("file", len(GRAPH)) and found["out"][0] == "directory"
    assert found["link"][0] == "link" and found["pipe"][0] == "other"
    assert answer["more"] == 1, "a name that is no text is counted"
    assert [entry["name"] for entry in ask("list", "out/")[0]["entries"]] == ["deep", "etc"]
    answer, data = ask("read", "flame.svg")
    assert answer == {"ok": True, "size": len(GRAPH)} and data == GRAPH


@pytest.mark.parametrize(
    ("op", "path", "words"),
    [
        ("read", "link", "Links are not followed"),
        ("read", "out/etc/passwd", "Links are not followed"),
        ("list", "out/etc", "Links are not followed"),
        ("read", "../../../../../../etc/passwd", "below the work directory"),
        ("read", "out/../../x", "below the work directory"),
        ("read", "out", "not a file"),
        ("read", "", "not a file"),
        ("read", "pipe", "not a file"),
        ("list", "flame.svg", "not a directory"),
        ("read", "nothing", "No such file"),
        ("read", "a\0b", "below the work directory"),
    ],
)
def test_what_is_none_of_the_runs_files_is_refused(work, ask, op, path, words):
    answer, data = ask(op, path)
    assert words in answer["error"] and data == b""


def test_an_absolute_path_begins_at_the_work_directory(work, ask):
    assert "No such file" in ask("read", "/etc/passwd")[0]["error"]


def test_a_large_directory_is_cut_and_says_so(work, ask):
    for number in range(1500):
        with open(os.path.join(work, "out", "deep", f"{number:04d}-{'x' * 100}"), "wb"):
            pass
    answer, _ = ask("list", "out/deep")
    assert len(answer["entries"]) + answer["more"] == 1500 and 100 < len(answer["entries"]) < 1000
    assert answer["entries"][0]["name"].startswith("0000-")


@pytest.mark.parametrize("run", ["../r1", "nothing", 7])
def test_a_run_that_is_not_here_has_no_files(work, ask, run):
    assert "error" in ask("list", run=run)[0]
