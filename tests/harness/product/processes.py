"""The product's processes: found by what they run, killed, stopped and continued by role."""

from __future__ import annotations

import contextlib
import os
import re
import signal

from tests.harness.leftovers import kill
from tests.harness.wait_and_processes import command_of, environment_of, pids, process_alive, wait_for

# A version before forks ran a command line of its own in each process (tests/flows/test_upgrade.py).
ROLES = {
    "up": r"^trainyard: up|console\.cli up",
    "web": r"^trainyard: web|-m console\.runtime\.web",
    "worker": r"^trainyard: worker|celery .*-A console\.runtime\.worker",
    "dispatcher": r"^trainyard: dispatcher|celery .*-A console\.runtime\.dispatcher",
    "extra": r"product\.fork_server",
    "beat": r"^trainyard: beat|-A console\.runtime\.celery_app beat",
    "broker": r"(redis|valkey)-server",
    "watchdog": r"^trainyard: watchdog",
}


class Processes:
    """The processes whose environment names this product's data directory, but the fork server of the harness."""

    def __init__(self, data, forks=None):
        self.data = str(data)
        self.forks = forks
        self.mark = f"TRAINYARD_DATA={data}\0".encode()

    def all(self):
        server = self.forks.pid if self.forks else None
        return [pid for pid in pids() if pid != server and self.is_ours(pid) and process_alive(pid)]

    def is_ours(self, pid):
        """Decide by the environment; redis-server overwrites it with its title, which has the path of its socket."""
        return self.mark in environment_of(pid) + b"\0" or f"-server unixsocket:{self.data}/" in command_of(
            pid
        )

    def of(self, role):
        """Return the PIDs of one role, the oldest first, without a tether process that has not become one yet."""
        pattern = re.compile(ROLES[role])
        found = []
        for pid in self.all():
            command = command_of(pid)
            if pattern.search(command) and "tether.py" not in command:
                found.append(pid)
        return sorted(found)

    def signal(self, role, number):
        hit = self.of(role)
        for pid in hit:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return hit

    def kill(self, role):
        """Send SIGKILL to every process of the role, wait until they are gone, and return their PIDs."""
        hit = self.signal(role, signal.SIGKILL)
        assert hit, f"no process of role {role} to kill"
        wait_for(lambda: not any(process_alive(pid) for pid in hit), f"the {role} to die")
        return hit

    def pause(self, role):
        """Send SIGSTOP to every process of the role. One that was killed before may be away for some seconds."""
        return wait_for(lambda: self.signal(role, signal.SIGSTOP), f"a process of role {role} to stop")

    def pause_one(self, pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)

    def kill_one(self, pid):
        kill(pid)

    def resume(self, *hit):
        for pid in hit or self.all():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def stopped(self):
        """Return the processes that are suspended by SIGSTOP."""
        return [pid for pid in self.all() if state_of(pid) == "T"]

    def wait_for_new(self, role, old):
        """Wait until a process has the role that is none of the old ones."""
        return wait_for(lambda: [pid for pid in self.of(role) if pid not in old], f"a new {role}")

    def kill_all(self):
        def none_left():
            left = self.all()
            for pid in left:
                kill(pid)
            return not left

        wait_for(none_left, "the product's processes to end")


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
