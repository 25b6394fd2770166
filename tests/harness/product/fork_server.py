"""A fork server: it has imported the product once, and forks dispatchers and workers in a tenth of a second each.

product.py runs it as `python -m tests.harness.product.fork_server`. It reads a role a line and answers with the child's
PID. A child differs from a process of `trainyard up` in nothing but its start.
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
# What both roles import besides when they start.
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
# What both roles need, so that a child does not have to import it again.
IMPORTED = (control_plane, sweep, tasks)


def main():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended children leave no zombies
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
    os.dup2(2, 1)  # the pipe of answers belongs to the parent
    importlib.import_module(f"console.runtime.{role}")
    name = f"{role}-{os.getpid()}"
    options = ["-P", "threads", "-c", "4", "-Q", QUEUES[role], "-n", f"{name}@%h", "-l", "WARNING"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["-q", "worker", *options, *quiet])
    os._exit(0)


if __name__ == "__main__":
    main()
