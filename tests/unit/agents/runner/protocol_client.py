"""The console of one test: it starts a runner as sshd would, speaks the protocol, and waits for conditions."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

from agents.runner.failpoints import RUNNER_FAILPOINTS
from agents.runner.processes import all_processes, read_process
from agents.runner.runs.facts import load_facts
from agents.runner.runs.held_resources import remove_cgroups
from agents.runner.wire import Decoder, encode
from agents.ssh.runner_archive import RUNNER as PACKAGE
from agents.ssh.runner_archive import runner_archive

# The Python of the runners. The tests themselves, and their replicas, use the Python of this process.
PYTHON = os.environ.get("RUNNER_PYTHON") or sys.executable
COMPILE = (
    "import sys; sys.path.insert(0, sys.argv[1]); from agents.runner import compiling\n"
    "sys.exit(not compiling.write_compiled(sys.argv[1]))\n"
)


def put_runner() -> Path:
    """The runner as hosts get it: one file, and beside it what the Python of the runners makes of its modules."""
    place = Path(tempfile.mkdtemp(prefix="trainyard-runner-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    data = runner_archive(PACKAGE)
    runner = place / f"{hashlib.sha256(data).hexdigest()}.pyz"
    runner.write_bytes(data)
    subprocess.run([PYTHON, "-c", COMPILE, runner], check=True)
    return runner


RUNNER = put_runner()
PATIENCE_S = 90.0


def wait_for(condition, what="a condition", patience=PATIENCE_S):
    """The first true value of the condition, which is checked every 20 ms."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"never came: {what}")


def command(*lines):
    """A replica in Python, from source lines. It imports no package: their .pth files are most of its start (-S)."""
    return [sys.executable, "-S", "-u", "-c", "\n".join(lines)]


class Host:
    """One login's home on this machine, and all runners that were ever started in it."""

    def __init__(self, home: Path, python=PYTHON):
        self.home = home
        self.python = python
        self.runner = RUNNER
        # As short as /tmp, which keeps the directories of runs that a test does not close.
        self.temporary = Path(tempfile.mkdtemp(prefix="trainyard-host-"))
        self.temporary.chmod(0o1777)
        self.env = {
            "HOME": str(home),
            "TMPDIR": str(self.temporary),
            "USER": "gpu",
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TRAINYARD_FAILPOINT": str(home / "arm") + "/",
        }
        (home / "arm").mkdir()
        self.consoles = []
        # What every order says of the runtime, besides the words of its command; None: its program is the host's.
        self.runtime = None

    def connect(self, **extra) -> Console:
        console = Console(self, extra)
        self.consoles.append(console)
        return console

    def arm(self, point, act="kill"):
        assert point in RUNNER_FAILPOINTS
        (self.home / "arm" / point).write_text(act)

    def fired(self, point):
        return not (self.home / "arm" / point).exists()

    def run_dir(self, run, deployment="dep") -> Path:
        return self.home / ".trainyard" / deployment / "runs" / run

    def facts(self, run):
        return load_facts(str(self.run_dir(run)))

    def keepers(self, run):
        """Pids of the keepers of a run, the outer one first."""
        found = []
        for pid in all_processes():
            with contextlib.suppress(OSError):
                title = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
                if title in (
                    b"trainyard-keeper " + run.encode(),
                    b"trainyard-keeper %s (second)" % run.encode(),
                ):
                    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    if b"HOME=" + os.fsencode(self.home) in environ:
                        found.append(pid)
        parents = {pid: process.parent for pid in found if (process := read_process(pid))}
        return sorted(parents, key=lambda pid: parents[pid] in parents)

    def processes(self):
        """All processes with this home in their environment: serves, keepers, replicas, children."""
        found = []
        for pid in all_processes():
            with contextlib.suppress(OSError):
                if b"HOME=" + os.fsencode(self.home) in Path(f"/proc/{pid}/environ").read_bytes().split(
                    b"\0"
                ):
                    found.append(pid)
        return found

    def clean(self):
        for console in self.consoles:
            console.drop()
        for _ in range(200):
            found = self.processes()
            for pid in found:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if not found:
                break
            time.sleep(0.02)
        for path in self.home.rglob("facts.json"):
            if facts := load_facts(str(path.parent)):
                remove_cgroups(facts, 5)
        shutil.rmtree(self.temporary, ignore_errors=True)


class Console:
    def __init__(self, host, extra):
        self.host = host
        self.process = subprocess.Popen(
            [host.python, str(host.runner), "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**host.env, **extra},
            cwd=host.home,
        )
        self.decoder = Decoder(preface=True)
        self.heard = []
        self.facts = {}
        self.logs = {}
        self.gaps = {}
        self.marks = {}
        self.acks = True

    def peak_mb(self):
        """The peak memory of serve."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def drop(self):
        """The connection is cut."""
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE_S)
            return
        self.process.kill()
        self.process.wait()
        raise AssertionError("serve did not end with its connection")

    def hello(self, deployment="dep", epoch=1):
        self.say("hello", v=1, deployment=deployment, epoch=epoch, console="test")
        greeting = self.hear("hello")
        self.hear("inventory", lambda m: m["last"])
        return greeting

    def say(self, kind, payload=b"", **fields):
        self.write(encode({"t": kind, **fields}, payload))

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def start(self, run, argv, pull=True, pack=False, **order):
        order = {"command": argv, "grace_s": 5, "log_budget_mb": 64, **self.in_runtime(argv), **order}
        payload = json.dumps(order).encode()
        start = {"t": "start", "run": run, "z": int(pack)}
        pull_it = encode({"t": "pull", "run": run, "from": 0}) if pull else b""
        # Both at once: a serve that is killed by the first could not take the second.
        self.write(encode(start, zlib.compress(payload) if pack else payload) + pull_it)

    def in_runtime(self, argv):
        if self.host.runtime is None:
            return {}
        return {"runtime": {**self.host.runtime, "entrypoint": argv[:1], "args": argv[1:]}}

    def read(self, timeout):
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            return
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        if not data:
            raise EOFError(f"the runner hung up: {str(self.heard[-3:])[-2000:]}")
        for message, payload in self.decoder.feed(data):
            self.take(message, payload)

    def take(self, message, payload):
        kind, run = message["t"], message.get("run")
        if kind == "fact":
            self.facts[run] = message
        elif kind == "inventory":
            self.facts.update({fact["run"]: fact for fact in message["runs"]})
        elif kind == "forgotten":
            self.facts.pop(run, None)
        elif kind == "gap":
            self.gaps.setdefault(run, []).append((message["from"], message["to"], message["reason"]))
            log = self.logs.setdefault(run, bytearray())
            assert message["from"] == len(log) < message["to"]
            log.extend(b"\0" * (message["to"] - len(log)))
        elif kind == "log":
            self.store(run, message, payload)
        elif kind in ("cast", "metrics"):
            message["data"] = zlib.decompress(payload) if message["z"] else payload
        self.heard.append(message)

    def store(self, run, message, payload):
        data = zlib.decompress(payload) if message["z"] else payload
        log = self.logs.setdefault(run, bytearray())
        assert len(data) == message["to"] - message["from"], message
        assert message["from"] == len(log), (message, len(log))
        log.extend(data)
        self.marks.setdefault(run, []).extend(tuple(mark) for mark in message["at"])
        if self.acks:
            self.say("ack", run=run, to=message["to"])

    def hear(self, kind, fits=lambda message: True, patience=PATIENCE_S):
        """Remove and return the first message of this kind that fits; others stay."""
        until = time.monotonic() + patience
        while True:
            for index, message in enumerate(self.heard):
                if message["t"] == kind and fits(message):
                    return self.heard.pop(index)
            if time.monotonic() > until:
                raise AssertionError(f"never heard {kind}; last: {str(self.heard[-5:])[-2000:]}")
            self.read(0.1)

    def phase(self, run, *phases):
        """The run's facts once it is in one of these phases."""
        until = time.monotonic() + PATIENCE_S
        while self.facts.get(run, {}).get("phase") not in phases:
            assert time.monotonic() < until, f"{run} never got to {phases}: {self.facts.get(run)}"
            self.read(0.1)
        return self.facts[run]

    def running(self, run):
        return self.phase(run, "running")

    def closed(self, run):
        return self.phase(run, "closed")

    def ended_log(self, run):
        """(bytes, digest) of a closed run, everything sent."""
        end = self.hear("log_end", lambda m: m["run"] == run)
        assert end["size"] == len(self.logs.get(run, b""))
        return bytes(self.logs.get(run, b"")), end["digest"]

    def text(self, run, wanted):
        """Wait until the run has printed `wanted`; returns all that it printed."""
        until = time.monotonic() + PATIENCE_S
        while wanted.encode() not in self.logs.get(run, b""):
            assert time.monotonic() < until, f"{run} never printed {wanted!r}: {self.logs.get(run)}"
            self.read(0.1)
        return self.logs[run].decode()

    def stop(self, run, grace=5.0):
        self.say("stop", run=run, grace_s=grace)
