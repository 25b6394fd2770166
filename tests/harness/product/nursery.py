"""Has imported the product once, and forks dispatchers and workers from there in a tenth of a second each.

Run by product.py as `python -m tests.harness.product.nursery`; it reads a role a line and answers with the child's pid.
A child differs from what `trainyard up` starts in how it came to be, and in nothing else.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys

from console.runtime.celery_app import app
from jobs import sweep, tasks
from jobs.host_sync import control_plane

PR_SET_PDEATHSIG = 1
# What they read besides when they start.
MORE = (
    "agents.links.fleet",
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.concurrency.thread",
    "celery.contrib.django.task",
    "celery.worker.autoscale",
    "celery.worker.consumer",
    "celery.worker.strategy",
    "jobs.wake.wakeup_list",
    "kombu.transport.redis",
)
QUEUES = {"dispatcher": "dispatch", "worker": "default"}
IMPORTED = (
    control_plane,
    sweep,
    tasks,
)  # what both roles need, so that a child does not have to read it again


def main():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are not kept as zombies
    for name in MORE:
        importlib.import_module(name)
    print("ready", flush=True)
    for line in sys.stdin:
        role = line.strip()
        pid = os.fork()
        if pid == 0:
            become(role)
        print(pid, flush=True)


def become(role):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(2, 1)  # the pipe of answers is not ours
    importlib.import_module(f"console.runtime.{role}")
    name = f"{role}-{os.getpid()}"
    options = ["-P", "threads", "-c", "4", "-Q", QUEUES[role], "-n", f"{name}@%h", "-l", "WARNING"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["-q", "worker", *options, *quiet])
    os._exit(0)


if __name__ == "__main__":
    main()
