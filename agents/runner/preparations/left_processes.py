"""Code of a job that runs while a host prepares: the setup.py of a package, the Python of a reducer. It belongs to no
run, so it gets no GPU, and a mark that names the process which prepares. What it leaves behind ends with that process;
if it has killed it, whatever has the mark is swept."""

from __future__ import annotations

import os
from typing import Dict, List

from agents.runner.host.gpus import mark_of
from agents.runner.processes import Process, all_processes, freeze_and_kill, marked, read_process

_PREFIX = "prepares:"
_ROUNDS = 50


def enter() -> None:
    """All that this process starts has its mark, and sees no GPU."""
    os.environ.update(of_preparation())


def of_preparation() -> Dict[str, str]:
    """What no variable of a job may change."""
    here = read_process(os.getpid())
    mark = "%s%d.%d" % (_PREFIX, os.getpid(), here.ticks if here else 0)
    return {"TRAINYARD_MARK": mark, "CUDA_VISIBLE_DEVICES": ""}


def sweep() -> int:
    """Kill what processes left behind that do not prepare any more. Returns how many were found."""
    dead = {mark for mark in map(mark_of, all_processes()) if mark.startswith(_PREFIX) and not _lives(mark)}

    def left() -> List[Process]:
        everyone = all_processes()
        found = {pid for mark in dead for pid in marked(mark, everyone)}
        return [everyone[pid] for pid in found if everyone[pid].state not in "ZX"]

    count = len(left())
    for _ in range(_ROUNDS):
        if not left():
            break
        freeze_and_kill(left)
    return count


def _lives(mark: str) -> bool:
    pid, _, ticks = mark[len(_PREFIX) :].partition(".")
    if not (pid.isdigit() and ticks.isdigit()):
        return False
    found = read_process(int(pid))
    return found is not None and found.ticks == int(ticks) and found.state not in "ZX"
