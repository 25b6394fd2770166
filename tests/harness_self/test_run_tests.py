"""tools/run-tests: a flake is red. Only .ci/run gives a second try, and shows each flake with seed and both logs."""

from __future__ import annotations

import contextlib
import importlib.machinery
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAKE = """
import pathlib
from tests.harness import seeds

def test_that_fails_once(request):
    seed = seeds.draw()
    seeds.keep(request.node.nodeid, seed)
    print("the seed is", seed)
    before = pathlib.Path(__file__).with_suffix(".tried")
    tried = before.exists()
    before.touch()
    assert tried, "the first try"

def test_that_passes():
    pass
"""
BROKEN = "def test_that_never_passes():\n    assert 1 == 2, 'always'\n"


@pytest.fixture(autouse=True)
def nothing_is_told_to_ci(monkeypatch):
    """What ends the runs of these tests does not end the run that they are a part of."""
    monkeypatch.delenv("TRAINYARD_TEST_ENDINGS", raising=False)


@pytest.fixture
def run_tests():
    """Run tools/run-tests on a folder of a few tests; returns its exit code and what it printed."""
    # Below the root: pytest tries a test again by its name, which begins there.
    (ROOT / "var").mkdir(exist_ok=True)
    place = pathlib.Path(tempfile.mkdtemp(prefix="run-tests-", dir=ROOT / "var"))

    def run(tries, options=(), **files):
        for name, text in files.items():
            (place / f"test_{name}.py").write_text(text)
        dropped = ("TRAINYARD_TEST_TRIES", "SEED")
        environment = {name: value for name, value in os.environ.items() if name not in dropped}
        environment |= {"TRAINYARD_TEST_WORKERS": "0", "PYTEST_ADDOPTS": "-p no:cacheprovider", **tries}
        words = [sys.executable, "tools/run-tests", *options, str(place.relative_to(ROOT))]
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
        return done.returncode, done.stderr + done.stdout

    yield run
    shutil.rmtree(place)


def test_a_flake_is_red_and_named_with_its_seed(run_tests):
    code, said = run_tests({}, flake=FLAKE)
    assert code == 1 and "trying again" not in said
    assert re.search(r"FAILED: \S+::test_that_fails_once \(SEED=\d+\)", said), said


def test_compiled_tests_are_kept_also_where_the_caller_keeps_none(run_tests):
    compiled = "import sys\n\ndef test_it(): assert not sys.dont_write_bytecode\n"
    code, said = run_tests({"PYTHONDONTWRITEBYTECODE": "1"}, compiled=compiled)
    assert code == 0, said


def test_a_second_try_shows_the_flake_last_with_its_seed_and_both_logs(run_tests, tmp_path):
    code, said = run_tests(
        {"TRAINYARD_TEST_TRIES": "2", "TRAINYARD_TEST_ENDINGS": str(tmp_path)}, flake=FLAKE
    )
    assert code == 0, said
    assert said.endswith((tmp_path / "flakes").read_text()) and (tmp_path / "failures").read_text() == ""
    shown = said[said.index("FLAKE: ") :]
    (seed,) = set(re.findall(r"the seed is (\d+)", said))
    assert f"(SEED={seed})" in shown and shown.count(f"the seed is {seed}") == 2, (
        "both logs, and the same seed"
    )
    assert "the first try" in shown and "the log of the try that passed" in shown
    assert said.splitlines()[-1].startswith("FLAKE: ")


def test_the_slow_run_ends_with_the_flakes_of_both_halves(monkeypatch, capsys):
    """The half on PostgreSQL, which runs beside the first, and the names of what was left out come before them."""
    tool, here, beside = load_run_tests(), threading.current_thread(), threading.Event()
    answers = iter(
        [
            tool.Try(1, {"a.py::flaky", "a.py::broken"}, {"a.py::flaky": "log of a"}, {"a.py::flaky": 7}),
            tool.Try(1, {"a.py::broken"}),
        ]
    )

    def run(part, *options, seed=None, kept=False):
        if threading.current_thread() is not here:
            assert (part, kept) == (tool.Part(database="the address"), True)
            beside.set()
            return tool.Try(1, {"b.py::flaky"}, {"b.py::flaky": "log of b"}, said="on PostgreSQL")
        assert beside.wait(30), "they run at the same time"
        print("pytest ran")
        # Only the flake of the first half has a seed, and it passes alone. So does the one on PostgreSQL, there.
        return tool.Try(0) if seed is not None or part.database else next(answers)

    @contextlib.contextmanager
    def postgresql():
        yield "the address"

    monkeypatch.setenv("TRAINYARD_TEST_TRIES", "2")
    monkeypatch.setattr(sys, "argv", ["run-tests", "--slow"])
    monkeypatch.setattr(tool, "run", run)
    monkeypatch.setattr(tool, "postgresql", postgresql)
    monkeypatch.setattr(tool, "LEFT_OUT", "needs_something")
    monkeypatch.setattr(tool, "name_what_was_left_out", lambda *_: print("LEFT OUT: c.py::test"))
    assert tool.main() == 1
    said = capsys.readouterr().out
    before, ending = said.split("LEFT OUT: c.py::test\n")
    assert before.count("pytest ran") == 4 and "on PostgreSQL" in before
    assert not re.search("FLAKE|BROKEN", before), before
    assert ending.startswith("BROKEN: a.py::broken failed twice (no seed).\n")
    assert "FLAKE: a.py::flaky failed once and passed alone (SEED=7)." in ending and "log of a" in ending
    assert "log of b" in ending and ending.splitlines()[-1].startswith("FLAKE: b.py::flaky (no seed)")


def test_failures_are_named_also_if_the_half_on_postgresql_breaks(monkeypatch, capsys):
    tool = load_run_tests()

    def run(part, *options, kept=False):
        if part.database:
            raise FileNotFoundError("pytest")
        return tool.Try(1, {"a.py::broken"})

    monkeypatch.delenv("TRAINYARD_TEST_TRIES", raising=False)
    monkeypatch.setattr(sys, "argv", ["run-tests", "--slow"])
    monkeypatch.setattr(tool, "run", run)
    monkeypatch.setattr(tool, "postgresql", lambda: contextlib.nullcontext("the address"))
    with pytest.raises(FileNotFoundError):
        tool.main()
    assert capsys.readouterr().out == "FAILED: a.py::broken (no seed)\n"


def load_run_tests():
    """Return tools/run-tests as a module: it has no suffix, and without arguments it would run the whole suite."""
    loader = importlib.machinery.SourceFileLoader("run_tests_tool", str(ROOT / "tools/run-tests"))
    tool = types.ModuleType(loader.name)
    # Dataclasses look their module up.
    sys.modules[loader.name] = tool
    tool.__file__ = loader.path
    loader.exec_module(tool)
    return tool


def test_a_test_that_fails_twice_is_broken(run_tests):
    code, said = run_tests({"TRAINYARD_TEST_TRIES": "2"}, flake=FLAKE, broken=BROKEN)
    assert code == 1 and re.search(r"BROKEN: \S+::test_that_never_passes failed twice \(no seed\)", said), (
        said
    )
    assert "FLAKE: " in said


def test_many_files_are_not_tried_again(run_tests):
    code, said = run_tests({"TRAINYARD_TEST_TRIES": "2"}, **{f"broken{n}": BROKEN for n in range(7)})
    assert code == 1 and "7 files failed; at most 6 are tried again" in said and said.count("FAILED: ") == 7


def test_another_number_of_tries_is_refused(run_tests):
    code, said = run_tests({"TRAINYARD_TEST_TRIES": "3"}, broken=BROKEN)
    assert code == 2 and "TRAINYARD_TEST_TRIES is '3': give 1 or 2." in said


def test_only_ci_gives_a_second_try():
    assert "TRAINYARD_TEST_TRIES=2" in (ROOT / ".ci/run").read_text()
    assert "TRIES" not in (ROOT / "Makefile").read_text()


BURNS = """
import subprocess
import sys
import time

SPIN = "import sys, time\\nwhile time.process_time() < 0.5: pass\\nopen(sys.argv[1], 'w')"

def test_that_burns(tmp_path):
    # In a child of a child, for which nobody can wait.
    subprocess.run(["setsid", "--fork", sys.executable, "-c", SPIN, tmp_path / "over"], check=True)
    while not (tmp_path / "over").exists():
        time.sleep(0.02)

def test_that_sleeps():
    time.sleep(0.6)
"""


@pytest.mark.needs_cgroups
def test_the_processor_time_of_a_test_has_that_of_all_that_it_starts(run_tests):
    code, said = run_tests({}, options=("--cpu",), burns=BURNS)
    assert code == 0 and "processor time of 2 tests" in said, said
    burns, sleeps = (
        float(re.search(rf"^ *(\S+) +\S+  \S+::test_that_{name}$", said, re.M)[1])
        for name in ("burns", "sleeps")
    )
    assert burns >= 0.5 > 0.4 > sleeps, said
