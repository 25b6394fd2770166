"""A whole training step of an ordinary torch program over a slow network: through reducers, and by gloo's ring.

Four trainers and four reducers, each in a network namespace of its own, with a token bucket of 100 Mbit/s each way.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import tempfile
from pathlib import Path

from agents.runner.reduction.files_on_hosts import put_files
from tests.bench.figures import Figure

PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "reduced_steps.py"
PYTHON = "/usr/bin/python3"
TRAINERS = REDUCERS = 4
MBIT, WIDTH, STEPS = 100, 1024, 8
PORT, PREFIX = 7000, "tyred"
FP32_AIM, BF16_AIM = 1.4, 2.5
RUN_S = 300


def reduction(options):
    steps = 2 if options.quick else STEPS
    megabytes = 3 * (WIDTH * WIDTH + WIDTH) * 4 / 1e6
    with Network(TRAINERS + REDUCERS) as network, tempfile.TemporaryDirectory() as place:
        files = put_files(place)
        ring, told = measured(network, files, None, steps)
        for wire, aim in (("", FP32_AIM), ("bf16", BF16_AIM)):
            ours, found = measured(network, files, wire, steps)
            gain = ring / ours
            alike = wire or abs(found - told) <= 1e-6 * max(1.0, abs(told))
            what = f"a step with {megabytes:.1f} MB of gradients, 4 trainers, 4 reducers, 100 Mbit/s, {wire or 'fp32'}"
            yield Figure(
                what,
                f"{ours:.2f} s" + ("" if alike else ", WRONG SUM"),
                f"gloo {ring:.2f} s",
                gain,
                f">= {aim} times as fast",
                None if options.quick else gain >= aim and bool(alike),
            )


def measured(network, files, wire, steps):
    """(median of a step, sum of all parameters). `wire` None: by gloo alone."""
    secret, processes = secrets.token_hex(32), []
    base = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "OMP_NUM_THREADS": "1"}
    try:
        if wire is not None:
            base |= {"PYTHONPATH": files, "TRAINYARD_REDUCTION_SECRET": secret}
            for number in range(TRAINERS, TRAINERS + REDUCERS):
                env = {**base, "TRAINYARD_REDUCTION_PORT": str(PORT)}
                processes.append(network.start(number, [PYTHON, "-m", "trainyard_reduction.reducer"], env))
        group = {
            "MASTER_ADDR": network.address(0),
            "MASTER_PORT": "29400",
            "WORLD_SIZE": str(TRAINERS),
            "GLOO_SOCKET_IFNAME": "eth0",
            "WIDTH": str(WIDTH),
            "STEPS": str(steps),
        }
        if wire is not None:
            addresses = [f"{network.address(TRAINERS + number)}:{PORT}" for number in range(REDUCERS)]
            group |= {
                "TRAINYARD_REDUCERS": ",".join(addresses),
                "TRAINYARD_REDUCTION_REPLICAS": str(TRAINERS),
                "TRAINYARD_REDUCTION_WIRE": wire,
            }
        trainers = []
        for rank in range(TRAINERS):
            env = {**base, **group, "RANK": str(rank)}
            if wire is not None:
                env["TRAINYARD_REDUCTION_REPLICA"] = str(rank)
            trainers.append(network.start(rank, [PYTHON, str(PROGRAM)], env))
        processes += trainers
        said = [trainer.communicate(timeout=RUN_S)[0] for trainer in trainers]
        found = re.search(r"median ([\d.]+) equal True sum (\S+)", said[0])
        if found is None or (wire is not None and "gradients go through" not in said[0]):
            raise RuntimeError(f"the training failed: {said[0][-500:]}")
        return float(found[1]), float(found[2])
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


class Network:
    """Namespaces on one bridge, each link with a token bucket each way."""

    def __init__(self, count):
        self.count = count

    def address(self, number):
        return f"10.78.0.{10 + number}"

    def start(self, number, command, env):
        return subprocess.Popen(
            ["ip", "netns", "exec", f"{PREFIX}{number}", *command],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def __enter__(self):
        self._remove()
        bridge = f"{PREFIX}-bridge"
        ip("netns", "add", bridge)
        ip("-n", bridge, "link", "add", "br0", "type", "bridge")
        ip("-n", bridge, "link", "set", "br0", "up")
        for number in range(self.count):
            own, outer = f"{PREFIX}{number}", f"b{number}"
            ip("netns", "add", own)
            ip("-n", own, "link", "add", "eth0", "type", "veth", "peer", "name", outer, "netns", bridge)
            ip("-n", own, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            ip("-n", bridge, "link", "set", outer, "master", "br0")
            for where, device in ((own, "eth0"), (own, "lo"), (bridge, outer)):
                ip("-n", where, "link", "set", device, "up")
                if device != "lo":
                    bucket = ["rate", f"{MBIT}mbit", "burst", "128k", "latency", "50ms"]
                    run("tc", "-n", where, "qdisc", "add", "dev", device, "root", "tbf", *bucket)
        return self

    def __exit__(self, *_):
        self._remove()

    def _remove(self):
        there = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        for line in there.splitlines():
            if (name := line.split()[0]).startswith(PREFIX):
                ip("netns", "del", name)


def ip(*words):
    run("ip", *words)


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
