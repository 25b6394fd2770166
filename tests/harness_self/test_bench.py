"""The bench tells our own figure, whatever happens to the reference."""

from __future__ import annotations

import os
import pathlib
import socket

import pytest

from tests.bench import jobs, slurm
from tests.harness import leftovers
from tests.harness.wait_and_processes import pids


@pytest.fixture
def daemons(monkeypatch, tmp_path):
    """Give Slurm a program of ours in place of each of its daemons."""

    def put(script):
        for name in slurm.PROGRAMS:
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setattr(slurm, "find", lambda name: str(tmp_path / name))

    return put


def own_children():
    return {pid for pid in pids() if parent_of(pid) == os.getpid()}


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_a_slurm_that_does_not_start_is_told_in_one_line_and_leaves_nothing(daemons):
    daemons("echo no such key; exit 1")
    before = own_children()
    times, why = jobs.slurm_first_lines(3)
    assert times == [] and why.startswith("Slurm did not start: munged ended.") and "\n" not in why
    assert "no such key" in why
    assert jobs.slurm_jobs_per_minute(3, tuned=True)[0] == 0
    assert own_children() == before and not list(leftovers_of("slurm"))


def test_a_slurm_whose_program_cannot_be_run_is_told(daemons, monkeypatch):
    monkeypatch.setattr(slurm, "find", lambda name: "/nowhere/slurm")
    assert "did not start" in jobs.slurm_first_lines(1)[1]


def test_slurm_gets_an_address_that_this_machine_has_without_test_hosts():
    with socket.socket() as there:
        there.bind((slurm.ADDRESS, 0))


def leftovers_of(name):
    return pathlib.Path(leftovers.scratch_root()).glob(f"{leftovers.PREFIX}{leftovers.identity()}-{name}-*")
