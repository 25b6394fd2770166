"""The code of a job comes into its work directory before it starts, and is its own there."""

from __future__ import annotations

import os
import shutil
import time

import pytest

KEY = "c" * 64


@pytest.fixture
def tree(host):
    """A tree in the cache of the host."""
    place = host.home / ".trainyard" / "dep" / "cache" / "trees" / KEY
    (place / "pkg").mkdir(parents=True)
    (place / "train.sh").write_text("echo trained in $PWD\n")
    (place / "train.sh").chmod(0o500)
    (place / "pkg" / "data").write_bytes(b"x" * (3 << 20))
    (place / "link").symlink_to("pkg/data")
    return place


def run_to_end(console, name, command, **order):
    console.start(name, command, **order)
    return console.closed(name)


def printed(host, name):
    return (host.home / ".trainyard" / "dep" / "runs" / name / "log").read_text()


def test_a_run_finds_its_code_and_may_change_it(host, console, tree):
    script = "cat link | wc -c; readlink link; ./train.sh; echo more >> train.sh; rm pkg/data; ls"
    facts = run_to_end(console, "r1", ["sh", "-c", script], code={"tree": KEY})
    assert facts["exit_code"] == 0
    assert printed(host, "r1").splitlines()[:2] == [str(3 << 20), "pkg/data"]
    assert "trained in" in printed(host, "r1") and printed(host, "r1").endswith("link\npkg\ntrain.sh\n")
    assert (tree / "pkg" / "data").stat().st_size == 3 << 20, "the cache is as it was"
    assert (tree / "train.sh").read_text() == "echo trained in $PWD\n"


def test_restarts_of_one_replica_keep_their_files_and_others_get_their_own(host, console, tree):
    script = "echo $0 >> seen; cat seen; ls train.sh"
    run_to_end(console, "a-r1", ["sh", "-c", script, "one"], code={"tree": KEY}, work_key="a")
    run_to_end(console, "a-r2", ["sh", "-c", script, "two"], code={"tree": KEY}, work_key="a")
    run_to_end(console, "b-r1", ["sh", "-c", script, "other"], code={"tree": KEY}, work_key="b")
    assert printed(host, "a-r2") == "one\ntwo\ntrain.sh\n"
    assert printed(host, "b-r1") == "other\ntrain.sh\n"


def test_code_may_lie_below_the_work_directory(host, console, tree):
    run_to_end(console, "r1", ["sh", "-c", "ls; ls src/lab"], code={"tree": KEY, "directory": "src/lab"})
    assert printed(host, "r1") == "src\nlink\npkg\ntrain.sh\n"


def test_a_run_whose_code_was_thrown_away_is_refused_and_not_started_without_it(host, console):
    facts = run_to_end(console, "r1", ["echo", "started"], code={"tree": "d" * 64}, work_key="w")
    assert facts["refusal"] == "unprepared" and "is not on this host any more" in facts["message"]
    assert not (host.home / ".trainyard" / "dep" / "work" / "w").exists()


@pytest.mark.parametrize(
    "code", ["x", {}, {"tree": "../x"}, {"tree": KEY, "directory": "../x"}, {"tree": KEY, "directory": "/x"}]
)
def test_a_bad_order_for_code_is_refused(console, code):
    facts = run_to_end(console, "r1", ["echo"], code=code)
    assert facts["refusal"] == "bad_order" and "code" in facts["message"]


def test_a_keeper_that_dies_while_it_copies_leaves_no_half_of_the_code(host, console, tree):
    """What a killed copy left is a draft; the next run of the replica copies anew."""
    draft = host.home / ".trainyard" / "dep" / "work" / "w.new"
    draft.mkdir(parents=True)
    (draft / "half").write_text("x")
    run_to_end(console, "r1", ["ls"], code={"tree": KEY}, work_key="w")
    assert printed(host, "r1") == "link\npkg\ntrain.sh\n" and not draft.exists()


def test_a_tree_in_use_is_young(host, console, tree):
    lock = tree.parent / f"{KEY}.lock"
    lock.touch()
    used = (
        time.time() - 2 * 3600
    )  # older than that, the first sweep of the connection may throw it away before
    os.utime(lock, (used, used))
    run_to_end(console, "r1", ["true"], code={"tree": KEY})
    assert lock.stat().st_mtime > time.time() - 3600


def test_a_command_finds_the_python_that_its_location_names(host, console, tmp_path):
    place = tmp_path / "env" / "bin"
    place.mkdir(parents=True)
    (place / "python3").write_text("#!/bin/sh\necho this one\n")
    (place / "python3").chmod(0o755)
    facts = run_to_end(console, "r1", ["python3", "-c", "1"], interpreter=str(place / "python3"))
    assert facts["exit_code"] == 0 and printed(host, "r1") == "this one\n"
    missing = str(tmp_path / "none" / "bin" / "python3")
    facts = run_to_end(console, "r2", ["python3", "-c", "1"], interpreter=missing)
    assert facts["refusal"] == "exec_failed" and facts["never_started"]
    assert f"is not on this host: {missing}" in facts["message"] and printed(host, "r2") == ""
    # By its other name it would be another Python that a command finds.
    shutil.copy(place / "python3", place / "python3.11")
    facts = run_to_end(console, "r3", ["python3", "-c", "1"], interpreter=str(place / "python3.11"))
    assert facts["refusal"] == "exec_failed" and "which python3 beside it has to be" in facts["message"]


@pytest.mark.parametrize("interpreter", ["python3", "/a:/b", 3])
def test_a_bad_order_for_an_interpreter_is_refused(console, interpreter):
    facts = run_to_end(console, "r1", ["echo"], interpreter=interpreter)
    assert facts["refusal"] == "bad_order" and "interpreter" in facts["message"]
