"""What an upload leaves out is what git leaves out: compared with git itself, also on random rules and names."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.client.packing import read_tree

NAMES = ("a", "b", "abc", "a.log", "build", "x y", "é", "[z]", "d.txt")
RULES = (
    *(
        "a",
        "*.log",
        "build/",
        "/a",
        "!a",
        "b/",
        "**/abc",
        "a/**",
        "a/**/b",
        "!*.log",
        "?",
        "[ab]",
        "[!a]",
        "[a-c]*",
    ),
    *(
        "x\\ y",
        "*",
        "!build",
        "!*/",
        "/build/*",
        "\\[z\\]",
        "# comment",
        "",
        "a/b",
        "d.*",
        "a.lo[!x]",
        "é",
        "b  ",
        "[z-a]x",
    ),
)


def git_takes(root):
    """The files that git would add."""
    subprocess.run(["git", "init", "-q", root], check=True)
    listed = subprocess.run(
        [
            "git",
            "-c",
            "core.quotepath=off",
            "-c",
            "core.excludesFile=/dev/null",
            "ls-files",
            "-z",
            "-o",
            "--exclude-standard",
        ],
        cwd=root,
        check=True,
        capture_output=True,
    ).stdout
    return {name for name in listed.decode().split("\0") if name and not name.startswith(".git/")}


def taken(root):
    return {path for path, _ in read_tree(root).files}


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    paths=st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), min_size=1, max_size=12),
    top=st.lists(st.sampled_from(RULES), max_size=5),
    inner=st.lists(st.sampled_from(RULES), max_size=3),
)
def test_random_rules_mean_what_they_mean_to_git(tmp_path_factory, paths, top, inner):
    root = tmp_path_factory.mktemp("tree")
    for parts in [["keep.me"], *paths]:
        path = root.joinpath(*parts)
        if any(parent.is_file() for parent in path.parents) or path.is_dir():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (root / ".gitignore").write_text("\n".join([*top, "!keep.me", "!.gitignore"]) + "\n")
    if (root / "a").is_dir():
        (root / "a" / ".gitignore").write_text("\n".join(inner) + "\n")
    assert taken(root) == git_takes(root)


@pytest.fixture
def folder(tmp_path):
    for name in (
        "train.py",
        "data/big.bin",
        "data/keep.txt",
        ".git/config",
        "__pycache__/x.pyc",
        ".venv/bin/python",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path


def test_what_no_host_needs_stays_here(folder):
    tree = read_tree(folder)
    assert {path for path, _ in tree.files} == {"train.py", "data/big.bin", "data/keep.txt"}
    assert tree.left_out == [".git/", ".venv/", "__pycache__/"]


def test_our_own_file_comes_after_that_of_git_and_may_take_back(folder):
    (folder / ".gitignore").write_text("data/*\n")
    (folder / ".trainyardignore").write_text("!data/keep.txt\n!.venv/\n.*ignore\n")
    assert taken(folder) == {"train.py", "data/keep.txt", ".venv/bin/python"}
