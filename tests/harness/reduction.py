"""A group of trainers and reducers on this machine: processes of the system's Python, with torch from Debian."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
from pathlib import Path

from agents.runner.reduction.files_on_hosts import put_files

PYTHON = "/usr/bin/python3"
PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
ENDS_S = 300


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Reduced:
    """`inside`: how many processes each replica has, which are ranks of one world."""

    def __init__(self, place, trainers, reducers, inside=1, wire="", mark="a mark"):
        self.files = put_files(str(place))
        self.place, self.count, self.inside, self.wire, self.mark = place, trainers, inside, wire, mark
        self.ports = [free_port() for _ in range(reducers)]
        self.secret = secrets.token_hex(32)
        self.master = free_port()
        self.reducers, self.trainers, self.outputs = [], [], {}

    def env(self, **more):
        base = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {
            **base,
            "PYTHONPATH": self.files,
            "TRAINYARD_REDUCTION_SECRET": self.secret,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            **more,
        }

    def start_reducers(self):
        for number, port in enumerate(self.ports):
            command = [PYTHON, "-m", "trainyard_reduction.reducer"]
            metrics = str(self.place / f"reducer-{number}.jsonl")
            env = self.env(TRAINYARD_REDUCTION_PORT=str(port), TRAINYARD_METRICS=metrics)
            self.reducers.append(self._start(f"reducer {number}", command, env))
        return self

    def rank_env(self, rank, **more):
        return self.env(
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(self.master),
            WORLD_SIZE=str(self.count * self.inside),
            RANK=str(rank),
            TRAINYARD_REDUCERS=",".join(f"127.0.0.1:{port}" for port in self.ports),
            TRAINYARD_REDUCTION_WIRE=self.wire,
            TRAINYARD_REDUCTION_REPLICA=str(rank // self.inside),
            TRAINYARD_REDUCTION_REPLICAS=str(self.count),
            TRAINYARD_MARK=f"{self.mark} {rank // self.inside}",
            TRAINYARD_METRICS=str(self.place / f"trainer-{rank}.jsonl"),
            **more,
        )

    def start_trainers(self, *command, env=None, wrapped=()):
        words = [*wrapped, PYTHON, str(PROGRAMS / command[0]), *command[1:]]
        for rank in range(self.count * self.inside):
            of_rank = env(rank) if callable(env) else env or {}
            self.trainers.append(self._start(f"trainer {rank}", words, {**self.rank_env(rank), **of_rank}))
        return self

    def _start(self, name, command, env):
        path = self.outputs[name] = self.place / f"{name.replace(' ', '-')}.log"
        with open(path, "wb") as file:
            return subprocess.Popen(
                command,
                env=env,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.place,
            )

    def text(self, name):
        return self.outputs[name].read_text(errors="replace")

    def ends(self):
        """The exit statuses of the trainers."""
        return [trainer.wait(ENDS_S) for trainer in self.trainers]

    def close(self):
        for process in (*self.trainers, *self.reducers):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)
