"""The processor time that each part of a deployment uses: its processes by role, its services, and its hosts."""

from __future__ import annotations

import os
from collections import defaultdict

from tests.bench.hosts_and_product import TICKS

ROLES = ("web", "dispatcher", "worker", "beat", "broker", "up")


def by_part(product):
    """Return the seconds that each part has used so far, its ended processes included."""
    stats = dict(read_stats())
    found = defaultdict(float)
    for role in ROLES:
        found[role] += sum(seconds_of(stats, pid) for pid in product.processes.of(role))
    for service in filter(None, (product.postgres, product.redis)):
        found[service.name] += sum(seconds_of(stats, pid) for pid in tree(stats, service.process.pid))
    for host in product.fleet:
        found["hosts"] += sum(seconds_of(stats, pid) for pid in tree(stats, host.pid))
    return found


def milliseconds_each(before, after, count):
    """Return ('web 12.1, dispatcher 9.8 ms', 21.9): what each part, and all, have used for each of `count`."""
    used = {part: (after[part] - before[part]) * 1000 / count for part in after}
    most = sorted(used.items(), key=lambda each: -each[1])
    return ", ".join(f"{part} {ms:.1f}" for part, ms in most if ms >= 0.05) + " ms", sum(used.values())


def read_stats():
    """Yield for each process its id, and (parent, ticks of itself and of its children that were waited for)."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:
                continue
            yield int(name), (int(fields[1]), sum(map(int, fields[11:15])))


def seconds_of(stats, pid):
    return stats[pid][1] / TICKS if pid in stats else 0.0


def tree(stats, root):
    """Return the process and all its descendants."""
    children = defaultdict(list)
    for pid, (parent, _) in stats.items():
        children[parent].append(pid)
    found, left = [], [root]
    while left:
        found.append(left.pop())
        left += children[found[-1]]
    return found
