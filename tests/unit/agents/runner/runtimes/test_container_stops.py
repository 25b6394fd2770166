"""Stops of containers of podman and Docker."""

from __future__ import annotations

import os

from agents.runner.processes import all_processes
from agents.runner.runtimes import containers
from agents.runner.runtimes.containers import Container
from tests.unit.agents.runner.runtimes.container_runs import pid_in, start, stop_while_it_is_made


def test_a_stop_is_heard_by_the_program(console, engine):
    start(console, "r1", "trap 'echo bye; exit 5' TERM; echo up; while true; do sleep 0.1; done")
    console.text("r1", "up")
    console.running("r1")
    console.stop("r1", 30)
    facts = console.closed("r1")
    assert facts["exit_code"] == 5 and facts["why"] == "stop"
    # The stop is for the `sleep` too, of which the shell may say "Terminated".
    assert b"bye" in console.ended_log("r1")[0].split()


def test_a_stop_is_for_the_programs_and_not_for_what_passes_it_on(host, console, engine):
    start(console, "r1", "echo up; sleep 60; exit 3")
    console.text("r1", "up")  # an init that passes signals on has started its program
    first, everyone = pid_in(host, "r1"), all_processes()
    container = Container(str(host.run_dir("r1")), host.facts("r1"))
    told = {process.pid for process in container.programs(everyone)}
    assert told and (first in told) is not any(map(os.path.exists, containers.INIT_PLACES))
    alone = {first: everyone[first]}
    assert [process.pid for process in container.programs(alone)] == [first], "it has started nothing yet"
    console.stop("r1", 0.2)
    assert console.closed("r1")["why"] == "stop"


def test_one_that_ignores_the_stop_is_killed_after_the_grace(console, engine):
    start(console, "r1", "trap '' TERM; echo up; while true; do sleep 0.1; done")
    console.text("r1", "up")
    console.running("r1")
    console.stop("r1", 0.5)
    facts = console.closed("r1")
    assert facts["why"] == "stop" and 128 + 9 in (facts["exit_code"], 128 + (facts["exit_signal"] or 0))


SLOW = """#!/bin/sh
if [ "$1" = run ]; then touch {place}/begun; sleep 3; fi
exec {engine} "$@"
"""


def test_a_stop_while_the_engine_makes_it_waits_for_nobody(host, engine, tmp_path):
    stop_while_it_is_made(host, engine, tmp_path, SLOW)
