"""tools/quick: the tests nearest to a change come first, and the time ends them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.harness.nearest_tests import nearest

ROOT = Path(__file__).resolve().parents[2]
TESTS = [
    "tests/unit/console/views/test_jobs.py",
    "tests/unit/jobs/rules/test_policy.py",
    "tests/unit/jobs/tuning/test_advance.py",
    "tests/unit/jobs/tuning/test_drawing.py",
]
SOME = """
def test_that_ends_in_time(): pass

def test_after_which_the_time_is_over(): pass

def test_for_which_no_time_is_left(): pass
"""


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ("jobs/tuning/drawing.py", ["jobs/tuning/test_drawing.py", "jobs/tuning/test_advance.py"]),
        ("jobs/tuning/new_one.py", ["jobs/tuning/test_advance.py", "jobs/tuning/test_drawing.py"]),
        ("tests/unit/jobs/rules/test_policy.py", ["jobs/rules/test_policy.py"]),
        ("templates/jobs/job.html", ["console/views/test_jobs.py"]),
    ],
)
def test_the_nearest_tests_come_first(changed, first):
    assert nearest([changed], TESTS)[: len(first)] == [f"tests/unit/{name}" for name in first]


def test_each_of_two_changes_has_its_tests_before_all_others():
    found = nearest(["jobs/rules/policy.py", "jobs/tuning/drawing.py"], TESTS)
    assert set(found[:2]) == {TESTS[1], TESTS[3]}


@pytest.mark.parametrize("workers", ["0", "2"])
def test_no_test_begins_after_the_time_and_the_end_says_how_many_are_left(workers):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "test_some.py"
        file.write_text(SOME)
        until = time.monotonic() + 600
        (Path(folder) / "conftest.py").write_text(
            "import tests.harness.until_a_time as plugin\n"
            "def pytest_runtest_teardown(item):\n"
            "    if 'over' in item.name: plugin.UNTIL = 0\n"
        )
        command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "--dist", "loadfile"]
        command += ["-p", "tests.harness.until_a_time", "-p", "no:django", "-c", "/dev/null", folder]
        env = {**os.environ, "TESTS_UNTIL": str(until), "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert "2 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "The time was over: 1 tests farther from the change did not run." in ended.stdout
    assert ended.returncode == 0
