"""What a run of the bench had of this machine: two runs of two days can only be compared by it."""

from __future__ import annotations

import os
import time

from tests.bench.figures import Figure, short

TICKS = os.sysconf("SC_CLK_TCK")
ADDITIONS = 2_000_000


class ThisMachine:
    """From its making on: how fast one core is, and how much of the cores other machines of the hypervisor took."""

    def __init__(self):
        self.loop_ms = additions_ms()
        self.began = time.monotonic()
        self.stolen = stolen_seconds()

    def figure(self):
        wanted = (time.monotonic() - self.began) * os.cpu_count()
        share = (stolen_seconds() - self.stolen) / wanted
        return Figure(
            f"this machine: {ADDITIONS:,} additions in Python, before and after; taken by the hypervisor meanwhile",
            f"{short(self.loop_ms)}, {short(additions_ms())} ms; {100 * share:.1f} % of {os.cpu_count()} cores",
        )


def additions_ms():
    """In processor time: what else runs here counts as little as it can."""
    begin, total = time.process_time(), 0
    for number in range(ADDITIONS):
        total += number
    return (time.process_time() - begin) * 1000


def stolen_seconds():
    with open("/proc/stat") as stat:
        return int(stat.readline().split()[8]) / TICKS
