"""The container of one run, made by Docker: its daemon is the parent, and a follower of ours tells how it ended."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, Mapping, Set, Tuple

from agents.runner.files import read_json, take_lock, unlink
from agents.runner.forks import close_all_but, write_traceback
from agents.runner.linux import retitle
from agents.runner.processes import Process, descendants
from agents.runner.runtimes.containers import KILLED_S, Container
from agents.runner.runtimes.docker_follower import END, LOCK, PID, Follower
from agents.runner.runtimes.engine_commands import DOCKER

# How long its output may take to be copied after the program was killed.
COPIED_S = 10.0


def container_of(directory: str, facts: Mapping[str, Any]) -> Container:
    return (DockerContainer if facts["runtime"].get("kind") == DOCKER else Container)(directory, facts)


class DockerContainer(Container):
    is_elsewhere = True
    client_is_silent = True  # `docker run --detach` prints the number of the container
    removed = False

    def end_of(self, client: int, pid: int, code: int, status: int) -> Tuple[int, int] | None:
        """The client only starts it; what the end of any other child may tell is in the file of the follower."""
        if pid == client:
            self.client_status = status if code == os.CLD_EXITED else -status
            unlink(os.path.join(self.directory, "container.env"))
            return None
        return self.recorded_end()

    def recorded_end(self) -> Tuple[int, int] | None:
        found = (read_json(os.path.join(self.directory, END)) or {}).get("code")
        return (os.CLD_EXITED, found) if isinstance(found, int) else None

    def was_made(self) -> bool:
        return super().was_made() or self.recorded_end() is not None

    def given_up(self) -> bool:
        """Also where the daemon does not know it any more."""
        recorded = read_json(os.path.join(self.directory, END))
        return self.never_up() or (recorded is not None and recorded.get("code") is None)

    def processes(self, everyone: Dict[int, Process]) -> Set[int]:
        pid = self.pid_in(PID)
        return {pid} | descendants({pid}, everyone) if pid in everyone and self.is_alive() else set()

    def monitor_lives(self) -> bool:
        return False

    def keep_followed(self, log: int, client: int, executed: bool) -> bool:
        """Have a follower once the client is over. Whether the run has to wait for one."""
        if not executed or self.removed or self.given_up() or self.recorded_end():
            return False
        if self.client_status is None and os.path.exists("/proc/%d" % client):
            return True
        lock = take_lock(os.path.join(self.directory, LOCK))
        if lock < 0:
            return True
        os.close(lock)
        follower = Follower(self.directory, self.program, self.name, log, {os.getpid(), os.getppid()})
        if os.fork() == 0:
            try:
                retitle("trainyard-follower %s" % self.name)
                close_all_but({0, 1, 2, log})
                follower.run()
            except BaseException:
                write_traceback(self.directory)
            finally:
                os._exit(0)
        return True

    def wait_until_told(self, reap: Callable[[], None]) -> None:
        """After it was killed: until its follower has copied the rest of its output, and written how it ended."""
        until = time.monotonic() + COPIED_S
        while not self.recorded_end() and not self.given_up() and time.monotonic() < until:
            lock = take_lock(os.path.join(self.directory, LOCK))
            if lock >= 0:
                os.close(lock)
                return  # nobody follows it
            reap()
            time.sleep(0.01)
        reap()

    def remove(self, reap: Callable[[], None], kill_engine: Callable[[], object]) -> str:
        """The daemon may be making it for a client that was killed: then it is removed once it is there."""
        if self.was_made():
            self.kill()
            self.wait_until_told(reap)
            self.removed = True
            return super().remove(reap, kill_engine)
        self.removed = True
        until = time.monotonic() + KILLED_S
        while True:
            words = super().remove(reap, kill_engine)
            if words or time.monotonic() > until:
                return words
            time.sleep(0.2)
