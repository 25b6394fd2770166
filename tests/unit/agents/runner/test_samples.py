"""Samples: the load of a run and all its processes, whatever their parent is by now, and the load of its GPUs."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agents.links.arrivals import arrivals
from agents.runner.programs import Program, output_of
from agents.runner.samples import SMI, read_load
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
    assert samples["busy"]["gpus"] == {uuid: [37, 4]} and samples["busy"]["disk_free_mb"] > 0
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
        ("GPU-a, 5, 1024\nGPU-b, [N/A], 7\n", {"GPU-a": [5, 1024], "GPU-b": [None, 7]}),
        (  # a card that needs a reset, one that is in MIG mode, one that has fallen off the bus
            "GPU-a, [GPU requires reset], 0\nGPU-b, [N/A], 14366\nGPU-c, [Unknown Error], [Unknown Error]\n"
            "GPU-d, ERR!, [Not Supported]\nUnable to determine the device handle for GPU4: 0000:34:00.0: Lost\n"
            "GPU-e, 99, 81000\n",
            {
                "GPU-a": [None, 0],
                "GPU-b": [None, 14366],
                "GPU-c": [None] * 2,
                "GPU-d": [None] * 2,
                "GPU-e": [99, 81000],
            },
        ),
        ("NVIDIA-SMI has failed, because, it did\n\ufffd\nGPU-a, 5\n", {}),
    ],
)
def test_the_output_of_nvidia_smi_is_parsed_strictly(text, load):
    assert read_load(text) == load


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
