"""Fake GPUs: device files, the driver's notes about them, an nvidia-smi, and foreign processes that use them."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

SMI = Path(__file__).parents[3] / "harness" / "hosts" / "fake_nvidia_smi.py"
HOLDS = """
import sys, time
name, device = sys.argv[1:]
if name:
    open("/proc/self/comm", "w").write(name)
held = open(device) if device else None
print("up", flush=True)
time.sleep(600)
"""


class FakeGpus:
    """`root` stands for / below TRAINYARD_GPU_ROOT. Minors are in the reverse order of indexes, as they may be on
    real machines."""

    def __init__(self, root: Path, count: int):
        self.root = root
        self.tools = root / "tools"
        self.tools.mkdir(parents=True)
        shutil.copyfile(SMI, self.tools / "nvidia-smi")
        (self.tools / "nvidia-smi").chmod(0o755)
        self.state_path = root / "state.json"
        self.state = {"count": count, "host": root.name, "apps": []}
        self.set()
        self.strangers = []
        (root / "dev").mkdir()
        self.env = {"TRAINYARD_GPU_ROOT": str(root), "FAKE_GPUS": str(self.state_path)}
        listing = subprocess.run(
            [sys.executable, str(SMI), "--query-gpu=uuid", "--format=csv,noheader"],
            env=self.env,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        self.uuids = listing.stdout.split()
        self.devices = [root / "dev" / f"nvidia{count - 1 - index}" for index in range(count)]
        for index, uuid in enumerate(self.uuids):
            self.devices[index].write_text("")
            notes = root / "proc/driver/nvidia/gpus" / f"0000:{16 + index:02x}:00.0" / "information"
            notes.parent.mkdir(parents=True)
            minor = count - 1 - index
            notes.write_text(
                f"Model: \t\t NVIDIA H100\nIRQ:   \t\t 96\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
            )

    def set(self, **changes):
        self.state.update(changes)
        self.state_path.write_text(json.dumps(self.state))

    def computes(self, index, pid):
        self.set(apps=[*self.state["apps"], {"gpu": index, "pid": pid}])

    def stranger(self, index, how, name="", **env):
        """A process on a GPU: seen by its open device, or only in the driver's list."""
        device = str(self.devices[index]) if how == "open" else ""
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDS, name, device],
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **env},
        )
        self.strangers.append(process)
        assert select.select([process.stdout], [], [], 60)[0] and os.read(process.stdout.fileno(), 10)
        if how == "compute":
            self.computes(index, process.pid)
        return process

    def end_strangers(self):
        for process in self.strangers:
            process.kill()
            process.wait()
            process.stdout.close()
        self.strangers = []
        self.set(apps=[])
