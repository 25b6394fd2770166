"""The kernel gives the pid of a dead replica to another process, for certain: that process lives on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.agents.runner.protocol_client import PYTHON, Host, command, wait_for

SPACES = ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child"]
AS_ROOT = os.getuid() == 0
# Children that it ignores leave no zombies, whose pids would not be free.
INIT = (
    "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
)
# The next process in this PID namespace gets the pid after the last one.
STRANGER = "echo $(($1 - 1)) > /proc/sys/kernel/ns_last_pid; sleep 600 & echo $!; wait"


class NumberedHost(Host):
    """A host with PIDs of its own, so that the next one can be chosen."""

    def __init__(self, home):
        super().__init__(home)
        spaces = SPACES if AS_ROOT else ["unshare", "-Ur", *SPACES[1:]]
        self.strangers = []
        self.init = subprocess.Popen([*spaces, sys.executable, "-c", INIT], stdout=subprocess.PIPE)
        assert self.init.stdout.readline() == b"ready\n"
        [self.pid1] = children(self.init.pid)
        enter = home / "python-inside"
        enter.write_text(f'#!/bin/sh\nexec {" ".join(self.inside())} {PYTHON} "$@"\n')
        enter.chmod(0o755)
        self.python = str(enter)

    def inside(self, *words):
        user = [] if AS_ROOT else ["-U", "--preserve-credentials"]
        return ["nsenter", "-t", str(self.pid1), *user, "-p", "-m", *words]

    def stranger(self, pid):
        """A process of another login with this very pid."""
        words = self.inside("sh", "-c", STRANGER, "sh", str(pid))
        self.strangers.append(
            subprocess.Popen(words, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]})
        )
        return int(self.strangers[-1].stdout.readline())

    def lives(self, pid):
        return Path(f"/proc/{self.pid1}/root/proc/{pid}/comm").read_text() == "sleep\n"

    def clean(self):
        super().clean()
        for process in (*self.strangers, self.init):
            process.kill()
            process.wait()
            process.stdout.close()


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def numbered(tmp_path):
    host = NumberedHost(tmp_path)
    yield host
    host.clean()


def test_a_process_with_the_pid_of_a_dead_replica_survives_its_cancel(numbered):
    """Failure mode 23. The same pid on the same boot: only the start time, pinned by a pidfd, distinguishes them."""
    console = numbered.connect()
    console.hello()
    console.start("r1", command("print('up')", "import time", "time.sleep(600)"))
    console.text("r1", "up")
    number = console.running("r1")["pid"]
    console.drop()
    for pid in [*numbered.keepers("r1"), *numbered.processes()]:  # keepers first, or they report the end
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not numbered.processes(), "all processes of the run to be dead")
    wait_for(lambda: numbered.stranger(number) == number, "another process with that pid")
    again = numbered.connect()
    again.hello()
    again.stop("r1", 0)
    facts = again.closed("r1")
    assert (facts["pid"], facts["why"], facts["survivors"]) == (number, "lost", [])
    assert numbered.lives(number)
