"""Samples: the load of living runs.

Serve takes them while a console reads. Nothing is stored here, and nothing is read while no run is alive. It takes a
few milliseconds at a time, so that no log waits for it.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Callable, Dict, Iterator, List, Tuple

from agents.runner.files import read_json
from agents.runner.host.load import HostLoad
from agents.runner.processes import all_processes, children_of, descendants, read_process
from agents.runner.runs.containment import counter
from agents.runner.runs.facts import Facts
from agents.runner.runs.known import Run
from agents.runner.runs.peers import LOOK_S, connected, peers_of
from agents.runner.wire import Message

SAMPLE_S = 10.0
SAMPLE_SLICE_S = 0.02


class Usage:
    """What a run had used at its last sample."""

    def __init__(self, run: Run, now: float) -> None:
        self.due = now
        self.at = 0.0
        self.cpu_s: float | None = None
        order = read_json(os.path.join(run.directory, "order.json")) or {}
        gpus = order.get("gpus")
        self.gpus: List[str] = gpus if isinstance(gpus, list) else []
        self.peers = peers_of(order)
        self.look_at_peers = now


class Samples:
    """The samples of all living runs of this host."""

    def __init__(self, load: HostLoad) -> None:
        self.usage: Dict[str, Usage] = {}
        self.load = load

    def take(self, runs: List[Run], free_mb: Callable[[], int]) -> Iterator[Message]:
        """The samples that are due now, as messages."""
        now = time.monotonic()
        living = [run for run in runs if run.facts is not None and run.facts["phase"] == "running"]
        self.usage = {run.run: self.usage.get(run.run) or Usage(run, now) for run in living}
        self.load.look(now, any(use.gpus for use in self.usage.values()))
        if living:
            self.load.count(now)
        for run in sorted(living, key=lambda run: self.usage[run.run].due):
            use = self.usage[run.run]
            if use.due > now or time.monotonic() - now > SAMPLE_SLICE_S:
                return
            if use.gpus and self.load.waits_for_first_smi:
                continue
            use.due = now + SAMPLE_S
            sample = self.sample(run, use)
            if sample is not None:
                yield dict(sample, disk_free_mb=free_mb())

    def sample(self, run: Run, use: Usage) -> Message | None:
        found = measure(run.facts or {})
        if found is None:
            return None
        (cpu_s, rss), now = found, time.monotonic()
        before, since = use.cpu_s, use.at
        use.cpu_s, use.at = cpu_s, now
        if before is None or now - since < 0.5:
            use.due = now + 1.0  # a rate needs two samples; the second one follows soon
            return None
        sample: Message = {
            "t": "sample",
            "run": run.run,
            "at": time.time(),
            "cpu": round(max(cpu_s - before, 0.0) / (now - since), 4),
            "rss_mb": rss >> 20,
            **self.of_host(use.gpus),
        }
        found_peer = look_for_peers(run.facts or {}, use, now)
        return sample if found_peer is None else dict(sample, connected=found_peer)

    def of_host(self, uuids: List[str]) -> Message:
        """The load of these GPUs, and of the network and the disks, which all runs of the host share.

        `gpus` has pairs, as in older runners: power and temperature have fields of their own.
        """
        seen = {uuid: self.load.gpus[uuid] for uuid in uuids if uuid in self.load.gpus}
        found: Message = {"gpus": {uuid: [load[0], load[1]] for uuid, load in seen.items()}}
        if seen:
            found["power"] = {uuid: load[2] for uuid, load in seen.items()}
            found["temp"] = {uuid: load[3] for uuid, load in seen.items()}
        return dict(found, **self.load.traffic())


def look_for_peers(facts: Facts, use: Usage, now: float) -> bool | None:
    """Whether the run has connected to its peers; None when it is not looked at now. A connection is told once."""
    pid = facts.get("pid")
    if use.peers is None or use.look_at_peers > now or not isinstance(pid, int) or pid <= 0:
        return None
    use.look_at_peers = now + LOOK_S
    found = connected(pid, process_tree(pid), use.peers)
    if found:
        use.peers = None
    return found


def measure(facts: Facts) -> Tuple[float, int] | None:
    """(CPU seconds used so far, bytes of memory) of all processes of a run."""
    cgroup, pid = facts.get("cgroup"), facts.get("pid")
    used = counter(os.path.join(cgroup, "cpu.stat"), "usage_usec") if cgroup else None
    if cgroup and used is not None:
        kinds = [counter(os.path.join(cgroup, "memory.stat"), kind) for kind in ("anon", "shmem")]
        if None not in kinds:
            return used / 1e6, sum(kind or 0 for kind in kinds)
    if not isinstance(pid, int) or pid <= 0:
        return None
    pids = process_tree(pid)
    times = [found for found in map(read_usage, pids) if found is not None]
    if not times:
        return None
    memory = sum(rss for _, rss in times)
    return (used / 1e6 if used is not None else sum(cpu for cpu, _ in times)), memory


def process_tree(pid: int) -> List[int]:
    """The replica, its keeper (which inherits orphans, and the CPU time of those it reaped), and all below it."""
    process = read_process(pid)
    if process is None:
        return []
    root = process.parent if _is_keeper(process.parent) else pid
    if not os.path.exists("/proc/self/task/%d/children" % os.getpid()):  # depends on how the kernel was built
        return [root, *descendants({root}, all_processes())]
    found, unvisited = [root], [root]
    while unvisited:
        below = children_of(unvisited.pop())
        found += below
        unvisited += below
    return found


def _is_keeper(pid: int) -> bool:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return pid > 1 and file.read(64).startswith(b"trainyard-")
    except OSError:
        return False


def read_usage(pid: int) -> Tuple[float, int] | None:
    """(CPU seconds of a process and of its reaped children, resident bytes)."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
        ticks = sum(int(field) for field in fields[11:15])
        return ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return None
