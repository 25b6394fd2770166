"""A second machine of a product: its own data directory, the keys of the first, and the folders that machines share."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys

from tests.harness import leftovers
from tests.harness.product.client import Client
from tests.harness.product.processes import Processes
from tests.harness.wait_and_processes import wait_for

READY = re.compile(r"Trainyard is ready at (http://\S+)")
ALL = "web,worker,dispatcher,beat"
SHARED = ("logs", "artifacts", "uploads")


class SecondMachine:
    """As docs/operating.md says: the same DATABASE_URL and REDIS_URL, a copy of `keys/`, and the same SHARED."""

    def __init__(self, first, only=ALL):
        self.first, self.only = first, only
        self.data = leftovers.scratch("machine")
        self.output = self.data / "output.log"
        shutil.copytree(first.data / "keys", self.data / "keys")
        for name in SHARED:
            self.share(name)
        self.processes = Processes(self.data)
        self.up = self.url = self.client = None

    def share(self, name):
        """Have this folder where the first machine has it."""
        (self.first.data / name).mkdir(mode=0o700, exist_ok=True)
        shutil.rmtree(self.data / name, ignore_errors=True)
        (self.data / name).symlink_to(self.first.data / name)

    def keep_apart(self, name):
        """Have a folder of its own, as one has who forgot to share it."""
        (self.data / name).unlink()
        (self.data / name).mkdir(mode=0o700)

    def start(self):
        self.output.unlink(missing_ok=True)
        environment = {**self.first.environment(), "TRAINYARD_DATA": str(self.data), "TRAINYARD_PORT": "0"}
        with open(self.output, "ab") as output:
            self.up = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", sys.executable]
                + ["-m", "console.cli", "up", "--only", self.only],
                cwd=self.first.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        found = wait_for(self.announced, "the second machine to be ready", timeout=240, dump=self.tail)
        self.url = found[1]
        self.client = Client(self.url, self.first.client.token)
        return self

    def announced(self):
        if self.up.poll() is not None:
            raise AssertionError(f"trainyard up ended with {self.up.returncode}:\n{self.tail()}")
        return READY.search(self.output.read_text(errors="replace"))

    def tail(self):
        return self.output.read_text(errors="replace")[-4000:] if self.output.exists() else ""

    def stop(self):
        if self.up and self.up.poll() is None:
            self.processes.resume()
            self.up.send_signal(signal.SIGINT)
            self.up.wait(120)

    def close(self):
        if self.up:
            self.processes.resume()
            self.processes.kill_all()
            self.up.wait()
        shutil.rmtree(self.data, ignore_errors=True)
