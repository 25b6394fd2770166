"""Memory and CPUs of containers of podman and Docker."""

from __future__ import annotations

import os
import shutil

import pytest

from agents.runner.runtimes import containers
from agents.runner.runtimes.containers import Container
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.runtimes.container_runs import connect, start


@pytest.mark.parametrize(("words", "status"), [("exec {}", 137), ("{}; sleep 1; exit 3", 3)])
def test_too_much_memory_is_told_as_such(host, console, engine, words, status):
    """Of the program, and of a worker of it. tail keeps all that it reads."""
    start(console, "r1", words.format("tail -c 300m /dev/zero"), memory_mb=64)
    facts = console.closed("r1")
    assert facts["memory_enforced"] == containers.may_limit("memory")
    if facts["memory_enforced"]:
        assert (facts["exit_code"], facts["oom"], facts["oom_sure"]) == (status, True, "certain")
        assert facts["message"] == "its container ran out of memory"
    assert not list((host.run_dir("r1") / "work").iterdir())


def test_a_kill_that_the_host_counted_may_have_been_for_the_containers_limit(tmp_path):
    facts = {"runtime": {"program": "false", "name": "x"}, "pid": None, "ticks": None}
    counted = (True, "likely", "killed when this host ran out of memory")
    container = Container(str(tmp_path), facts)
    assert container.judge_oom(counted, limited=False) == counted
    assert container.judge_oom(counted, limited=True)[2].startswith("killed when its container, or this host")
    assert container.judge_oom((False, "certain", ""), limited=True) == (False, "certain", "")


@pytest.mark.parametrize(("record", "oom"), [("true", (True, "certain")), ("false", (False, "likely"))])
def test_a_process_of_it_that_ran_out_of_memory_is_told_though_another_one_ended(
    host, engine, tmp_path, record, oom
):
    """As where a worker is killed and the program fails for that: what the engine has recorded counts."""
    program = tmp_path / "bin" / engine.kind
    program.parent.mkdir()
    real = shutil.which(engine.kind)
    program.write_text(f'#!/bin/sh\ncase "$*" in *OOMKilled*) echo {record};; *) exec {real} "$@";; esac\n')
    program.chmod(0o755)
    console = connect(host, engine, PATH=f"{program.parent}:{os.environ['PATH']}")
    start(console, "r1", "exit 3", memory_mb=64)
    facts = console.closed("r1")
    assert (facts["exit_code"], (facts["oom"], facts["oom_sure"])) == (3, oom)
    assert ("its container ran out of memory" in facts["message"]) is (record == "true")
    start(console, "r2", "exit 0", memory_mb=64)
    assert console.closed("r2")["oom"] is False
    wait_for(lambda: not engine.containers(), "no container to be left")


def test_it_gets_the_cpus_and_the_shared_memory_of_its_machine_type(host, console, engine):
    start(console, "r1", "df -m /dev/shm | tail -n 1; exec sleep 600", memory_mb=600, cpus=0.5)
    console.text("r1", "300")
    name = host.facts("r1")["runtime"]["name"]
    limits = engine("inspect", "--format", "{{.HostConfig.NanoCpus}} {{.HostConfig.Memory}}", name).split()
    assert limits == ["500000000", str(600 << 20)]
    console.stop("r1", 0)
    console.closed("r1")


def test_it_gets_the_shared_memory_that_the_job_asks_for(console, engine):
    start(console, "r1", "df -m /dev/shm | tail -n 1", memory_mb=600, runtime={"shm_mb": 420})
    console.closed("r1")
    assert b" 420 " in console.ended_log("r1")[0]


def test_it_may_have_as_many_threads_as_a_program_of_the_host(host, console, engine):
    start(console, "r1", "echo up; exec sleep 600")
    console.text("r1", "up")
    name = host.facts("r1")["runtime"]["name"]
    found = engine("inspect", "--format", "{{.HostConfig.PidsLimit}}", name).split()
    assert found[0] in ("-1", "0", "<nil>"), "as the engine says that there is no limit"
    console.stop("r1", 0)
    console.closed("r1")


def test_a_machine_of_no_size_has_no_limits(host, console, engine):
    start(console, "r1", "echo up; exec sleep 600", cpus=1.0)
    console.text("r1", "up")
    name = host.facts("r1")["runtime"]["name"]
    assert engine("inspect", "--format", "{{.HostConfig.NanoCpus}} {{.HostConfig.Memory}}", name).split() == [
        "0",
        "0",
    ]
    console.stop("r1", 0)
    console.closed("r1")


def test_a_login_gets_limits_only_where_they_are_delegated(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    monkeypatch.setattr(containers, "DELEGATED", str(tmp_path / "{uid}"))
    assert not containers.may_limit("memory")
    (tmp_path / "1234").write_text("cpuset memory pids\n")
    assert containers.may_limit("memory") and not containers.may_limit("cpu")


def test_samples_count_its_processes(console, engine):
    start(console, "r1", "echo up; while true; do :; done")
    console.text("r1", "up")
    console.running("r1")
    console.hear("sample", lambda m: m["run"] == "r1" and m["cpu"] > 0.05)
    console.stop("r1", 0)
    console.closed("r1")
