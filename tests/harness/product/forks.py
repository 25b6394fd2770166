"""What is forked from one process that has imported the product: else each start takes a second of processor time."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from tests.harness import leftovers
from tests.harness.wait_and_processes import process_alive, wait_for

COMMAND_S = 240


class ForkedProcess:
    """What subprocess.Popen gives, for a child of the fork server. It writes its exit code, unless it is killed."""

    def __init__(self, pid, place):
        self.pid, self.place = pid, place
        self.returncode = None

    def poll(self):
        if self.returncode is None and not process_alive(self.pid):
            code = self.place / "code"
            self.returncode = int(code.read_text()) if code.exists() else -signal.SIGKILL
        return self.returncode

    def wait(self, timeout=COMMAND_S):
        wait_for(lambda: self.poll() is not None, f"the end of process {self.pid}", timeout, every=0.02)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)


class Forks:
    """The fork server of one product (fork_server.py), started when the first fork is asked for."""

    def __init__(self, product):
        self.product = product
        self.server = None
        self.environment = None
        self.places = None
        self.lock = threading.Lock()

    @property
    def pid(self):
        return self.server.pid if self.server else None

    def start_role(self, role):
        """Fork a dispatcher or a worker. It is not restarted when it dies."""
        return self.ask("role", role=role)

    def start_up(self):
        """Fork `trainyard up`, by the settings that the product has now."""
        if self.server and self.environment != self.product.fork_environment():
            self.close()
        place = self.new_place()
        return ForkedProcess(self.ask("up", place=str(place)), place)

    def run(self, commands, stdin=None):
        """Run commands of `trainyard` in one child, one after the other until one fails. Returns what they printed."""
        place = self.new_place()
        try:
            for name, text in (("in", stdin or ""), ("out", ""), ("err", "")):
                (place / name).write_text(text)
            forked = ForkedProcess(self.ask("commands", commands=commands, place=str(place)), place)
            code = forked.wait(COMMAND_S)
            said, complained = ((place / name).read_text() for name in ("out", "err"))
            return subprocess.CompletedProcess(commands, code, said, complained)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def new_place(self):
        """A directory that only we may read, because what a person types may be a secret."""
        self.places = self.places or leftovers.scratch("forks")
        return pathlib.Path(tempfile.mkdtemp(dir=self.places))

    def ask(self, what, **request):
        with self.lock:
            self.be_there()
            self.server.stdin.write(json.dumps({"what": what, "port": self.product.port(), **request}) + "\n")
            self.server.stdin.flush()
            return int(self.server.stdout.readline())

    def be_there(self):
        if self.server and self.server.poll() is None:
            return
        self.close()
        environment = self.product.fork_environment()
        with open(self.product.output, "ab") as output:
            self.server = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.harness.product.fork_server"],
                cwd=self.product.root,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        self.environment = environment
        assert self.server.stdout.readline() == "ready\n", self.product.tail()

    def close(self):
        server, self.server = self.server, None
        if server:
            server.kill()
            server.wait()
            server.stdin.close()
            server.stdout.close()

    def remove(self):
        self.close()
        if self.places:
            shutil.rmtree(self.places, ignore_errors=True)
