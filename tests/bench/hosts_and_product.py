"""What a measurement needs: hosts, the product as shipped, and an OpenSSH client as reference."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time

from tests.harness.hosts import Fleet
from tests.harness.product import Product
from tests.harness.wait_and_processes import run

TICKS = os.sysconf("SC_CLK_TCK")
# As shipped: no scaled time, no failpoints.
SHIPPED = {
    "LEASE_S": "15",
    "TICK_S": "1",
    "GRACE_S": "10",
    "LINK_DEAD_S": "12",
    "MIN_FREE_MB": "200",
    "FAILPOINT": "",
}


class Shipped(Product):
    """One process of each role, with the settings that people get."""

    password_rounds = ""

    def __init__(self, shape, **settings):
        super().__init__(shape, **{**SHIPPED, **settings})

    def start_extra(self, role):
        return None


@contextlib.contextmanager
def product_on_hosts(shape="embedded", hosts=2, disk_mb=256, **settings):
    with Fleet(hosts, disk_mb=disk_mb) as fleet, Shipped(shape, **settings) as product:
        product.with_admin().with_hosts(fleet)
        yield product


class Master:
    """An OpenSSH ControlMaster connection: what a person with `ssh` at the same host would have."""

    def __init__(self, host):
        self.host = host
        self.path = host.dir / "control"
        self.options = ("-o", f"ControlPath={self.path}")

    def __enter__(self):
        run(*self.host.ssh_command(options=(*self.options, "-o", "ControlMaster=yes", "-fN")))
        return self

    def __exit__(self, *_):
        subprocess.run(self.command("-O", "exit"), capture_output=True)

    def command(self, *words):
        if words[:1] == ("-O",):
            return self.host.ssh_command(options=(*self.options, *words))
        return self.host.ssh_command(*words, options=self.options)

    def first_line_ms(self, command="echo first"):
        begin = time.perf_counter()
        process = subprocess.Popen(self.command(command), stdout=subprocess.PIPE)
        process.stdout.readline()
        took = (time.perf_counter() - begin) * 1000
        process.stdout.close()
        process.wait()
        return took


def cpu_seconds(pids):
    """Return the user and system time of these processes so far."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / TICKS
    return total


def rss_mb(pids):
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as status:
            total += sum(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return total / 1024


def forget_peak(pids):
    """Let `peak_mb` count from now on."""
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/clear_refs", "w") as file:
            file.write("5")


def peak_mb(pids):
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as status:
            total += sum(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    return total / 1024
