"""A fork server: it has imported the product once, and forks dispatchers and workers in a tenth of a second each.

product.py runs it as `python -m tests.harness.product.fork_server`. It reads a role a line and answers with the child's
PID. A child differs from a process of `trainyard up` in nothing but its start.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

import django
from django.utils.module_loading import import_string

PR_SET_PDEATHSIG = 1
QUEUES = {"dispatcher": "dispatch", "worker": "default"}


def main():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended children leave no zombies
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    django.setup()
    import_string("console.runtime.processes.children.load_shared")()
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
    name = f"{role}-{os.getpid()}"
    options = ["-P", "threads", "-c", "4", "-Q", QUEUES[role], "-n", f"{name}@%h", "-l", "WARNING"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    import_string(f"console.runtime.{role}.app").worker_main(["-q", "worker", *options, *quiet])
    os._exit(0)


if __name__ == "__main__":
    main()
