"""An unmodified program: what Python runs at its start, how its files come to it, and whose end a lost reducer is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from agents.runner.programs import output_of
from agents.runner.reduction import ending, files_on_hosts, numpy_check
from agents.runner.reduction.group import agree
from agents.runner.reduction.numpy_check import check_numpy
from agents.runner.runs.orders import Refused, build_env, parse_order


def run(files, code, *options, **more):
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": files, **more}
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_the_programs_own_sitecustomize_runs_as_if_ours_were_not_there(tmp_path):
    files = files_on_hosts.put_files(str(tmp_path))
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("ran = True\n")
    code = "import sitecustomize; print(sitecustomize.ran, sitecustomize.__file__)"
    for more in ({}, {"TRAINYARD_REDUCERS": "127.0.0.1:1"}):
        assert run(f"{files}:{own}", code, **more).stdout == f"True {own}/sitecustomize.py\n"
    (own / "sitecustomize.py").write_text("import not_there\n")
    done = run(f"{files}:{own}", "print('goes on')")
    assert done.stdout == "goes on\n"
    assert "Error in sitecustomize" in done.stderr


def test_nothing_is_imported_before_a_program_imports_torch(tmp_path):
    files = files_on_hosts.put_files(str(tmp_path))
    code = (
        "import sys; print(sorted(name for name in sys.modules if name.startswith(('trainyard', 'torch'))))"
    )
    assert run(files, code, TRAINYARD_REDUCERS="127.0.0.1:1").stdout == "[]\n"


def test_a_package_agents_of_the_program_stays_its_own(tmp_path):
    files = files_on_hosts.put_files(str(tmp_path))
    assert not os.path.exists(os.path.join(files, "agents"))
    for name, data in files_on_hosts.SOURCES.items():
        assert b"agents.runner" not in data, name


def test_files_are_put_once_and_whole(tmp_path):
    files = files_on_hosts.put_files(str(tmp_path))
    before = os.stat(os.path.join(files, "sitecustomize.py")).st_mtime_ns
    assert files_on_hosts.put_files(str(tmp_path)) == files
    assert os.stat(os.path.join(files, "sitecustomize.py")).st_mtime_ns == before


def test_another_user_can_read_the_files_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        files = files_on_hosts.put_files(str(tmp_path))
    finally:
        os.umask(before)
    for place, _, names in os.walk(files):
        assert os.stat(place).st_mode & 0o777 == 0o755
        found = {os.stat(os.path.join(place, name)).st_mode & 0o777 for name in names if name[-3:] == ".py"}
        assert found == {0o644}


def test_a_run_finds_the_files_first_of_all(tmp_path):
    facts = {"host_env": {}, "tmp": "", "mark": "a:b"}
    directory = str(tmp_path / "runs" / "r")
    for role, first in (("trainer", True), ("reducer", True), ("other", False)):
        order = parse_order({"command": ["true"], "env": {"PYTHONPATH": "/theirs"}, "reduction": role})
        path = build_env(order, directory, "/work", facts)["PYTHONPATH"].split(":")
        assert (path[0] == files_on_hosts.directory_of(str(tmp_path))) is first
        assert "/theirs" in path


def test_a_Python_without_numpy_is_refused_with_the_cure(tmp_path):
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(Refused) as refused:
        check_numpy(str(bare), {"PATH": os.environ["PATH"]})
    assert refused.value.refusal == "exec_failed"
    assert "needs numpy" in str(refused.value)
    assert "No module named 'numpy'" in str(refused.value)
    assert '"containerSpec": {"command"' in str(refused.value)
    check_numpy(sys.executable, {"PATH": os.environ["PATH"]})


def test_no_secret_stands_in_the_arguments_of_the_check(monkeypatch):
    asked = []

    def spied(command, *more):
        asked.append(command)
        return output_of(command, *more)

    monkeypatch.setattr(numpy_check, "output_of", spied)
    env = {"PATH": os.environ["PATH"], "SECRET": "do not tell", "PYTHONPATH": "/theirs"}
    check_numpy(sys.executable, env)
    assert "do not tell" not in str(asked)
    shown = [sys.executable, "-c", "import os; print(os.environ)"]
    assert "do not tell" in output_of(shown, 60.0, env)[1]
    assert "HOME" not in output_of(shown, 60.0, env)[1]


def test_SIGABRT_goes_to_the_first_process_with_the_mark_and_to_nobody_above():
    me = os.getpid()
    family = {me: (30, "m"), 30: (20, "m"), 20: (10, ""), 10: (1, "m"), 1: (0, "")}

    def read(pid):
        parent, mark = family[pid]
        return parent, {ending.MARK: mark}

    assert ending.first_process("m", read) == 30
    family.update({30: (20, "m"), 20: (1, "m"), 1: (0, "m")})
    assert ending.first_process("m", read) == 20, "process 1 of a container does not hear SIGABRT"


class Store(dict):
    def set(self, name, value):
        self[name] = value.encode()

    def get(self, name):
        return self[name]

    def wait(self, names, timeout):
        if not set(names) <= self.keys():
            raise RuntimeError("not in time")


def plans(replicas, wanted):
    store = Store()
    every = [
        {"TRAINYARD_REDUCTION_REPLICA": str(each), "TRAINYARD_REDUCTION_REPLICAS": str(wanted)}
        for each in replicas
    ]
    for rank in range(1, len(every)):
        store.set(f"trainyard/reduction/0/0/{rank}", every[rank]["TRAINYARD_REDUCTION_REPLICA"])
    return [agree(store, rank, len(every), 0, each, 77 if not rank else 5) for rank, each in enumerate(every)]


def test_only_a_group_over_all_replicas_goes_through_the_reducers():
    whole = plans([0, 0, 1, 1], 2)
    assert len(set(map(repr, whole))) == 1
    assert len(whole[0].session) == 32
    assert whole[0].ranks_of(1) == [2, 3]
    assert {plan.patience_s for plan in whole} == {77}
    part = plans([0, 1], 3)
    assert {plan.session for plan in part} == {""}
    assert "spans 2 of the 3 replicas" in part[0].why


def test_a_process_that_knows_of_no_reducers_lets_all_do_without():
    environment = {"TRAINYARD_REDUCTION_REPLICA": "0", "TRAINYARD_REDUCTION_REPLICAS": "2"}
    plan = agree(Store(), 0, 2, 0, environment)
    assert plan.session == ""
    assert "not all processes" in plan.why
