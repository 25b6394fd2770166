"""Each test is in exactly one of `make test`, `make test-slow` and `make exhaustive`; CI runs the first and a third
of the second."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import conftest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("test", "test-slow", "exhaustive")
EACH_KIND = """
import pytest

slow, exhaustive = pytest.mark.slow, pytest.mark.exhaustive

def test_plain(): pass

@slow
def test_slow(): pass

@exhaustive
def test_further_variant(): pass

@slow
@exhaustive
def test_further_variant_of_a_slow_one(): pass

@pytest.mark.parametrize("variant", ["plain", *(pytest.param(each, marks=[slow, exhaustive]) for each in "ab"),
                                     pytest.param("slow", marks=slow), pytest.param("further", marks=exhaustive)])
def test_with_variants(variant): pass

@pytest.mark.needs_namespaces
def test_that_needs_namespaces(): pass

@slow
@pytest.mark.needs_cgroups
def test_slow_that_needs_cgroups(): pass
"""


@pytest.fixture(scope="module")
def ran():
    """What each target prints when its tests are those of EACH_KIND."""
    (ROOT / "var").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="targets-", dir=ROOT / "var"))
    (folder / "test_each_kind.py").write_text(EACH_KIND)
    yield {target: run_by(target, folder.relative_to(ROOT)) for target in TARGETS}
    shutil.rmtree(folder)


def command(target):
    """The line of the Makefile that runs the tests of a target."""
    said = subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    [line] = [line for line in said.splitlines() if re.search("run-tests|pytest", line)]
    return line


def run_by(target, folder):
    line = f"{command(target).removesuffix(' tests')} {folder} -vv"
    # tests/conftest.py is read for its own folder only, unless it is named.
    options = "-p no:cacheprovider -p tests.conftest"
    environment = {**os.environ, "TRAINYARD_TEST_WORKERS": "0", "PYTEST_ADDOPTS": options}
    for name in ("TRAINYARD_TEST_TRIES", "TRAINYARD_TEST_ENDINGS", "TRAINYARD_TEST_PART", "EXHAUSTIVE"):
        environment.pop(name, None)
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def names(said):
    """The tests that ran, and those that this machine cannot run, by their names."""
    found = re.findall(r"^(?:LEFT OUT: )?\S+::(\S+)(?: PASSED.*)?$", said, re.M)
    return sorted(found)


def test_each_test_is_in_exactly_one_target(ran):
    assert {target: names(said) for target, said in ran.items()} == {
        "test": ["test_plain", "test_that_needs_namespaces", "test_with_variants[plain]"],
        "test-slow": ["test_slow", "test_slow_that_needs_cgroups", "test_with_variants[slow]"],
        "exhaustive": [
            "test_further_variant",
            "test_further_variant_of_a_slow_one",
            "test_with_variants[a]",
            "test_with_variants[b]",
            "test_with_variants[further]",
        ],
    }


def test_who_runs_make_test_reads_at_its_end_that_there_are_slow_tests(ran):
    assert ran["test"].splitlines()[-1].endswith("make test-slow runs them.")


def test_each_file_is_in_exactly_one_third_and_each_third_has_its_share():
    items = [SimpleNamespace(path=f"file{number // 2}") for number in range(14)]
    thirds = [conftest.files_of_part(items, number, 3) for number in (1, 2, 3)]
    assert [len(third) for third in thirds] == [3, 2, 2]
    assert set().union(*thirds) == {item.path for item in items}


@pytest.mark.parametrize("words", ["2", "4/3", "0/3", "a/b"])
def test_what_is_no_part_is_refused_with_the_cure(words):
    with pytest.raises(pytest.UsageError, match="Give one such as 2/3"):
        conftest.part_of(words)


def test_a_third_of_the_slow_tests_leaves_out_the_other_files(tmp_path):
    (ROOT / "var").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="thirds-", dir=ROOT / "var"))
    for name in "abc":
        (folder / f"test_{name}.py").write_text("def test_it(): pass\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest", folder]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "TRAINYARD_TEST_PART": "2/3"}, capture_output=True, text=True
    )
    shutil.rmtree(folder)
    assert "1 passed, 2 deselected" in done.stdout, done.stdout


FAKE_MAKE = """#!/bin/sh
echo "make $1 ran with $TRAINYARD_TEST_TRIES tries"
case "$1 $2" in "test "|"test-slow PART="[123]/3) ;; *) echo "make was given $*" ;; esac
echo "FAILED: in $1" >>"$TRAINYARD_TEST_ENDINGS/failures"
echo "FLAKE: in $1" >>"$TRAINYARD_TEST_ENDINGS/flakes"
[ "$1" != "$RED" ]
"""


@pytest.mark.parametrize(("red", "code"), [("none", 0), ("test", 1), ("test-slow", 1)])
def test_ci_runs_both_and_ends_with_the_failures_and_flakes_of_both(tmp_path, red, code):
    (tmp_path / "make").write_text(FAKE_MAKE)
    (tmp_path / "make").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "RED": red}
    done = subprocess.run([ROOT / ".ci" / "run"], env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    said = [line for line in done.stdout.splitlines() if not line.startswith("ci: make ")]
    *ran, verdict, failed, failed_slow, flake, flake_slow = said
    assert ran == ["make test ran with 2 tries", "make test-slow ran with 2 tries"]
    assert bool(re.search(rf"red: {red}( PART=\d/3)?;", verdict)) == (code == 1)
    assert [failed, failed_slow] == ["FAILED: in test", "FAILED: in test-slow"]
    assert [flake, flake_slow] == ["FLAKE: in test", "FLAKE: in test-slow"]
