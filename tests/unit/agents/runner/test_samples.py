"""Samples: the load of a run and all its processes, whatever their parent is by now, and the load of its GPUs."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agents.links.arrivals import arrivals
from agents.runner.host import load as host_load
from agents.runner.host.load import SMI, HostLoad, read_gpus
from agents.runner.programs import Program, output_of
from tests.unit.agents.runner.protocol_client import command, wait_for

# The busy child is an orphan: its parent is gone, and it is in a session of its own.
SPIN = command(
    "import os, time",
    "if os.fork():",
    "    os.wait()",
    "    time.sleep(600)",
    "os.setsid()",
    "if os.fork():",
    "    os._exit(0)",
    "held = bytearray(64 << 20)",
    "held[::4096] = b'x' * len(held[::4096])",
    "print('at work')",
    "while True: pass",
)


def first_gpu(host):
    return output_of(["env", *(f"{k}={v}" for k, v in host.env.items()), *SMI])[1].split(",")[0]


def test_inactive_runs_read_zero_and_orphans_are_counted(host, smi):
    console = host.connect()
    console.hello()
    uuid = first_gpu(host)
    console.start("busy", SPIN, gpus=[uuid])
    console.start("idle", ["sleep", "600"])
    console.text("busy", "at work")
    samples = {run: console.hear("sample", lambda m, run=run: m["run"] == run) for run in ("busy", "idle")}
    while samples["busy"]["cpu"] < 0.2:  # the first sample may have come before it was busy
        samples["busy"] = console.hear("sample", lambda m: m["run"] == "busy")
    assert samples["idle"]["cpu"] < 0.02 and samples["idle"]["gpus"] == {}
    assert samples["busy"]["rss_mb"] >= 64 > samples["idle"]["rss_mb"]
    assert samples["busy"]["gpus"] == {uuid: [37, 4]}
    assert samples["busy"]["power"] == {uuid: 71.2} and samples["busy"]["temp"] == {uuid: 34}
    assert "power" not in samples["idle"] and samples["busy"]["disk_free_mb"] > 0
    for message in samples.values():
        [arrival] = arrivals(message, b"")
        assert (arrival.run, round(arrival.what.cpu, 4)) == (message["run"], message["cpu"])


def test_a_driver_that_hangs_holds_nothing_up(host, smi):
    console = host.connect()
    console.hello()
    console.start("r1", ["sleep", "600"], gpus=["GPU-1"])
    console.running("r1")
    smi(fail="hang")
    console.start("r2", ["sh", "-c", "echo done"])
    assert console.ended_log("r2")[0] == b"done\n"
    assert console.hear("sample", lambda m: m["gpus"] == {})["run"] == "r1"
    console.drop()
    wait_for(lambda: not [pid for pid in host.processes() if b"nvidia-smi" in cmdline(pid)])


def cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (
            "GPU-a, 5, 1024, 71.24, 34\nGPU-b, [N/A], 7, [N/A], [N/A]\n",
            {"GPU-a": (5, 1024, 71.2, 34), "GPU-b": (None, 7, None, None)},
        ),
        (  # a card that needs a reset, one that is in MIG mode, one that has fallen off the bus
            "GPU-a, [GPU requires reset], 0, 20, 30\nGPU-b, [N/A], 14366, 20, 30\n"
            "GPU-c, [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error]\n"
            "GPU-d, ERR!, [Not Supported], nan, -1\n"
            "Unable to determine the device handle for GPU4: 0000:34:00.0: Lost\n"
            "GPU-e, 99, 81000, 699.99, 88\n",
            {
                "GPU-a": (None, 0, 20, 30),
                "GPU-b": (None, 14366, 20, 30),
                "GPU-c": (None,) * 4,
                "GPU-d": (None,) * 4,
                "GPU-e": (99, 81000, 700.0, 88),
            },
        ),
        ("NVIDIA-SMI has failed, because, it, did, so\n\ufffd\nGPU-a, 5\n", {}),
    ],
)
def test_the_output_of_nvidia_smi_is_parsed_strictly(text, load):
    assert read_gpus(text) == load


class Kernel:
    """/proc and /sys of a host, made by the test."""

    def __init__(self, root, monkeypatch):
        self.root = root
        monkeypatch.setattr(host_load, "PROC", str(root / "proc"))
        monkeypatch.setattr(host_load, "SYS", str(root / "sys"))
        for card in ("net/eth0", "net/eth1"):
            (root / "sys/class" / card / "device").mkdir(parents=True)
        (root / "sys/block/nvme0n1/device").mkdir(parents=True)
        self.show(0)

    def show(self, number):
        """Counters after `number` units: 1 and 10 MB by each card, 2 and 4 MB on the disk, 300 ticks of work."""
        words = "face |bytes packets errs drop fifo frame compressed multicast|bytes packets"
        line = "{}: {} 0 0 0 0 0 0 0 {} 0 0 0 0 0 0 0"
        cards = [line.format(card, number * 10**6, number * 10**7) for card in ("  eth0", "  eth1", " bond0")]
        self.write("net/dev", [words, words, line.format("    lo", 7**number, 7**number), *cards])
        disk = "259 {} {} 9 9 {} 9 9 9 {} 9 0 9 9"
        of_disk = (number * 2 * 10**6 // 512, number * 4 * 10**6 // 512)
        names = ("nvme0n1", "nvme0n1p1", "dm-0", "loop0")
        self.write("diskstats", [disk.format(at, name, *of_disk) for at, name in enumerate(names)])
        self.write("stat", [f"cpu  {100 * number} 0 {100 * number} 9999 999 0 {100 * number} 0 0 0"])
        self.write("meminfo", ["MemTotal: 4194304 kB", "MemFree: 1 kB", "MemAvailable: 1048576 kB"])

    def write(self, name, lines):
        (self.root / "proc" / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / "proc" / name).write_text("\n".join(lines) + "\n")


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    return Kernel(tmp_path, monkeypatch)


def test_network_and_disks_are_rates_of_the_real_cards_and_disks(kernel):
    """A bond and a partition count what the card and the disk have counted: not twice."""
    load = HostLoad()
    load.count(100.0)
    assert load.traffic() == {}
    kernel.show(5)
    load.count(105.0)
    assert load.traffic() == {"net": [2 * 10**6, 2 * 10**7], "io": [1_999_974, 3_999_949]}
    load.count(106.0)
    assert load.rates["cpu"] == pytest.approx(15 / 5, abs=0.01)
    kernel.show(1)  # the counters began anew: no rate, and above all none below zero
    load.count(111.0)
    assert load.traffic() == {}


def test_after_a_long_pause_no_rate_is_made_of_it(kernel):
    load = HostLoad()
    load.count(100.0)
    kernel.show(5)
    load.count(100.0 + host_load.STALE_S)
    assert load.traffic() == {}


def test_a_container_without_cards_counts_its_interfaces(kernel, monkeypatch):
    monkeypatch.setattr(host_load, "SYS", "/nowhere")
    load = HostLoad()
    load.count(100.0)
    kernel.show(5)
    load.count(105.0)
    assert load.traffic()["net"] == [3 * 10**6, 3 * 10**7]


def test_the_load_of_the_host_is_reported_when_it_is_asked_for(host, smi):
    console = host.connect()
    console.hello()
    uuid = first_gpu(host)
    console.say("watch", gpus=[], soon=[], load=True)
    load = console.hear("load")
    assert load["gpus"][uuid] == [37, 4, 71.2, 34] and len(load["gpus"]) == 2
    assert load["cpu"] >= 0 and load["mem_mb"] > 0 and len(load["net"]) == len(load["io"]) == 2


def test_a_console_that_asks_for_no_load_gets_none(kernel):
    """An older console sends `watch` without the field `load`, or none at all."""
    load = HostLoad()
    for now in (100.0, 101.0, 140.0):
        load.look(now, gpus_in_use=False)
        assert load.report(now) is None and load.smi is None and load.counted == 0


def test_a_card_that_hangs_does_not_hold_up_the_load(kernel, smi, monkeypatch):
    load = HostLoad()
    load.asked = True
    monkeypatch.setattr(host_load, "SMI", ["sleep", "600"])
    try:
        load.look(100.0, gpus_in_use=False)
        assert load.report(100.0) is None
        kernel.show(1)
        load.look(100.0 + host_load.SMI_PATIENCE_S, gpus_in_use=False)
        told = load.report(100.0 + host_load.SMI_PATIENCE_S)
        assert told["gpus"] == {} and told["mem_mb"] == 3072 and told["cpu"] > 0
        assert load.report(101.0 + host_load.SMI_PATIENCE_S) is None
    finally:
        load.close()


@pytest.mark.parametrize("missing", ["pipe", "fork"])
def test_serve_goes_on_without_a_descriptor_or_process_for_nvidia_smi(monkeypatch, missing):
    """serve starts nvidia-smi itself every ten seconds: its connection must not end when it cannot."""

    def none():
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, missing, none)
        program = Program(["echo", "hello"])
    assert program.read() and program.output == ""
    status, words = program.answer(1.0)
    assert status == 127 and "Too many open files" in words
