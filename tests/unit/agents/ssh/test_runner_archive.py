"""The runner's archive: the same sources give the same bytes anywhere and at any time, and it holds nothing else."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import zipfile

from agents.ssh.runner_archive import RUNNER, runner_archive


def test_the_same_sources_give_the_same_bytes(tmp_path):
    copy = tmp_path / "another place"
    shutil.copytree(RUNNER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for number, path in enumerate(sorted(copy.iterdir(), reverse=True)):
        os.utime(path, (1e9 + number, 1e9 + number))
        path.chmod(0o755)
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "wire.cpython-311.pyc").write_bytes(b"left by somebody")
    assert runner_archive(copy) == runner_archive(RUNNER)
    with open(copy / "tail.py", "a") as file:
        file.write("# another version\n")
    assert runner_archive(copy) != runner_archive(RUNNER)


def test_the_archive_holds_only_the_package_of_the_runner():
    with zipfile.ZipFile(io.BytesIO(runner_archive(RUNNER))) as archive:
        names = archive.namelist()
        assert names == sorted(names), "not in the order in which a disk happens to list them"
        known = {(e.date_time, e.create_system, e.external_attr, e.compress_type) for e in archive.infolist()}
        assert known == {((1980, 1, 1, 0, 0, 0), 3, 0o600 << 16, zipfile.ZIP_STORED)}
        assert archive.read("agents/__init__.py") == b""
        assert archive.read("__main__.py") == (RUNNER / "__main__.py").read_bytes()
        assert archive.read("agents/runner/wire.py") == (RUNNER / "wire.py").read_bytes()
    paths = {path.relative_to(RUNNER) for path in RUNNER.rglob("*.py")}
    modules = {f"agents/runner/{path}" for path in paths} - {"agents/runner/__main__.py"}
    assert set(names) == modules | {"__main__.py", "agents/__init__.py"} and len(names) == len(set(names))


def test_serve_imports_no_modules_that_slow_down_each_fork(tmp_path):
    """`threading` and `random` have hooks that run in every fork: as much work as all the rest of a new keeper."""
    (tmp_path / "runner.pyz").write_bytes(runner_archive(RUNNER))
    program = "import sys; sys.path.insert(0, 'runner.pyz'); import agents.runner.serve; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, check=True)
    modules = set(done.stdout.decode().split())
    assert "agents.runner.runs.keeper" in modules and not modules & {"threading", "random", "subprocess"}
