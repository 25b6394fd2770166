"""Slurm from Debian's packages on this machine, as reference. Where it cannot be set up, the figures say so."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import time

from tests.harness.leftovers import clear, owned_environment, scratch
from tests.harness.wait_and_processes import wait_for

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "munged")
CONFIG = """\
ClusterName=bench
SlurmctldHost={host}({address})
AuthInfo=socket={dir}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
{extra}
NodeName={host} NodeAddr={address} CPUs=64
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:8
"""


# The setting of Slurm's guide for high throughput: no delay before a batch job starts, and a pass every 2 ms.
TUNED = "SchedulerParameters=batch_sched_delay=0,sched_min_interval=2000,defer"
START_S = 30.0
# An address that this machine has, also while no test host is up. Else another machine, or a proxy, answers.
ADDRESS = "127.0.0.1"


class NoSlurm(Exception):
    """Why there is no Slurm to compare with, in words."""


class Slurm:
    def __init__(self, tuned=False):
        missing = [name for name in PROGRAMS if not find(name)]
        if missing:
            raise NoSlurm(
                f"{', '.join(missing)} not installed: apt-get install slurmd slurmctld slurm-client munge"
            )
        clear()  # of an earlier run that was killed: its daemons hold the ports
        self.dir = scratch("slurm")
        self.extra = TUNED if tuned else ""
        self.processes = []
        self.environment = {**owned_environment(), "SLURM_CONF": str(self.dir / "slurm.conf")}

    def __enter__(self):
        try:
            self.start()
        except (OSError, AssertionError) as problem:
            self.close()
            raise NoSlurm(f"Slurm did not start: {one_line(problem)}") from problem
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def start(self):
        for name in ("state", "spool"):
            (self.dir / name).mkdir()
        host = os.uname().nodename
        text = CONFIG.format(host=host, address=ADDRESS, dir=self.dir, extra=self.extra)
        (self.dir / "slurm.conf").write_text(text)
        key = self.dir / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        # munged insists on safe parents; --force accepts our temporary directory
        files = [
            f"--{name}={self.dir}/munge.{name.split('-')[0]}"
            for name in ("pid-file", "log-file", "seed-file")
        ]
        self.spawn(
            "munged",
            "--foreground",
            "--force",
            f"--socket={self.dir}/munge.socket",
            f"--key-file={key}",
            *files,
        )
        self.wait_for((self.dir / "munge.socket").exists, "munged's socket")
        self.spawn("slurmctld", "-D", "-i")
        self.spawn("slurmd", "-D")
        self.wait_for(self.idle, "Slurm's node to be idle")

    def wait_for(self, condition, what):
        wait_for(lambda: condition() or self.ended(), what, START_S, dump=self.logs)
        assert not self.ended(), f"{self.ended()} ended. {self.logs()}"

    def ended(self):
        return " and ".join(
            os.path.basename(each.args[3]) for each in self.processes if each.poll() is not None
        )

    def spawn(self, name, *words):
        command = ["setpriv", "--pdeathsig", "KILL", find(name), *words]
        with (self.dir / f"{name}.out").open("wb") as output:
            process = subprocess.Popen(command, env=self.environment, stdout=output, stderr=output)
        self.processes.append(process)

    def idle(self):
        done = subprocess.run(
            ["sinfo", "-h", "-o", "%T"], env=self.environment, capture_output=True, text=True
        )
        return done.stdout.strip() == "idle"

    def logs(self):
        return "".join(path.read_text(errors="replace")[-1500:] for path in self.dir.glob("*.out"))

    def first_line_ms(self):
        """Measure `srun` of a command until its first line arrives."""
        begin = time.perf_counter()
        process = subprocess.Popen(
            ["srun", "-Q", "echo", "first"], env=self.environment, stdout=subprocess.PIPE
        )
        process.stdout.readline()
        took = (time.perf_counter() - begin) * 1000
        process.stdout.close()
        process.wait()
        return took

    def jobs_per_minute(self, count):
        """Measure `sbatch` of `count` jobs until the queue is empty."""
        script = self.dir / "true.sh"
        script.write_text("#!/bin/sh\ntrue\n")
        begin = time.perf_counter()
        for _ in range(count):
            subprocess.run(["sbatch", "-Q", "-o", "/dev/null", script], env=self.environment, check=True)
        wait_for(lambda: not self.queued(), "Slurm's queue to be empty", timeout=180, every=0.05)
        return count / (time.perf_counter() - begin) * 60

    def queued(self):
        return subprocess.run(["squeue", "-h"], env=self.environment, capture_output=True).stdout

    def close(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def one_line(problem):
    return " ".join(str(problem).split())[:200]


def find(name):
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
