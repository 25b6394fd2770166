"""A fork server: it has imported the product once, and forks all that a product runs in a tenth of a second.

forks.py runs it as `python -m tests.harness.product.fork_server`. It reads a request a line, as JSON, and answers with
the child's PID. A child differs from a process of `trainyard up`, or of `trainyard COMMAND`, in its start, and in how
often it hashes a password: by the product's settings each login, and each password that is set, costs 0.4 s.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import signal
import sys
import threading
import traceback
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import django
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.utils.module_loading import import_string
from setproctitle import setproctitle

PR_SET_PDEATHSIG = 1
QUEUES = {"dispatcher": "dispatch", "worker": "default"}


def main():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended children leave no zombies
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    django.setup()
    import_string("console.runtime.processes.children.load_shared")()
    import_module("console.commands")
    if rounds := os.environ.get("PASSWORD_ROUNDS"):
        PBKDF2PasswordHasher.iterations = int(rounds)
    gc.freeze()  # pages that the collector does not touch stay shared
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            know_port(asked.pop("port"))
            REQUESTS[asked.pop("what")](**asked)
            os._exit(0)
        print(pid, flush=True)


def role(role):
    os.dup2(2, 1)  # the pipe of answers belongs to the parent
    name = f"{role}-{os.getpid()}"
    options = ["-P", "threads", "-c", "4", "-Q", QUEUES[role], "-n", f"{name}@%h", "-l", "WARNING"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    import_string(f"console.runtime.{role}.app").worker_main(["-q", "worker", *options, *quiet])


def know_port(port):
    """The settings were read before the port was known."""
    settings.TRAINYARD = replace(settings.TRAINYARD, port=port)
    os.environ["TRAINYARD_PORT"] = str(port)


def up(place):
    """`trainyard up` in a session of its own; it ends when this process does."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    sys.stdin = stream(os.devnull, 0, os.O_RDONLY)
    os.dup2(2, 1)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    setproctitle("trainyard: up")
    end(exit_code(["up"]), Path(place))


def commands(commands, place):
    """Run the commands one after the other, each as `trainyard` would. A NUL ends what each of them prints."""
    place = Path(place)
    sys.stdin = stream(place / "in", 0, os.O_RDONLY)
    sys.stdout, sys.stderr = (
        stream(place / name, number, os.O_WRONLY) for name, number in (("out", 1), ("err", 2))
    )
    code = 0
    for words in commands:
        code = code or exit_code(words)
        print(end="\0", flush=True)
    end(code, place)


def end(code, place):
    """As an interpreter ends: a command's last hints are sent by then."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    (place / "code").write_text(str(code))


def stream(path, number, how):
    os.dup2(os.open(path, how), number)
    return os.fdopen(number, "r" if how == os.O_RDONLY else "w", closefd=False)


def exit_code(words):
    try:
        return import_string("console.cli.main")(words)
    except SystemExit as end:  # of argparse
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1


REQUESTS = {each.__name__: each for each in (role, up, commands)}

if __name__ == "__main__":
    main()
