"""The container of one run, made by Docker: its daemon is the parent, and a follower of ours tells how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import Callable, Dict, Set, Tuple

from agents.runner.files import read_json, take_lock, unlink, write_file
from agents.runner.forks import close_all_but, inheritable, write_traceback
from agents.runner.linux import retitle
from agents.runner.processes import Process, descendants, read_process
from agents.runner.runtimes.containers import CLIENT_FAILED, KILLED_S, MAY_COME, Container
from agents.runner.runtimes.docker_follower import ALIVE, END, HEAD, LOCK, OVER, PID, Follower, look_at

# How long no more of its output may be copied after the program was killed, although its follower is not done.
COPIED_S = 10.0
# How long its follower may be about to begin.
FORKED_S = 1.0
# How long a keeper waits for the daemon.
ASKED_S = 5.0


class DockerContainer(Container):
    is_elsewhere = True
    client_is_silent = True  # `docker run --detach` prints the number of the container
    removed = False
    client_over = False
    asked = False
    executed = False  # as the daemon says

    def end_of(self, client: int, pid: int, code: int, status: int) -> Tuple[int, int] | None:
        """The client only starts it; what the end of any other child may tell is in the file of the follower."""
        if pid == client:
            self.client_over = True
            self.client_status = status if code == os.CLD_EXITED else -status
            unlink(os.path.join(self.directory, "container.env"))
            return None
        return self.recorded_end()

    def recorded_end(self) -> Tuple[int, int] | None:
        found = (read_json(os.path.join(self.directory, END)) or {}).get("code")
        return (os.CLD_EXITED, found) if isinstance(found, int) else None

    def is_up(self) -> bool:
        if self.first is None:
            self.ask_once()
        return super().is_up()

    def was_made(self) -> bool:
        return (
            super().was_made() or self.executed or self.client_status == 0 or self.recorded_end() is not None
        )

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
        if not os.path.isdir(self.directory):
            return False  # somebody has deleted it: there is no place to tell in how it ends
        if not self.client_over:
            found = read_process(client)
            if found is not None and found.parent == os.getpid():
                return True
            self.client_over = True
        with contextlib.suppress(OSError):  # a full disk, no more processes: tried again at the next turn
            lock = take_lock(os.path.join(self.directory, LOCK))
            if lock >= 0:
                os.close(lock)
                self.fork_follower(log)
        return True

    def fork_follower(self, log: int) -> None:
        follower = Follower(self.directory, self.program, self.name, log, {os.getpid(), os.getppid()})
        if os.fork() == 0:
            try:
                signal.set_wakeup_fd(-1)
                retitle("trainyard-follower %s" % self.name)
                close_all_but({0, 1, 2, log} | inheritable())
                follower.run()
            except BaseException:
                write_traceback(self.directory)
            finally:
                os._exit(0)

    def ask_once(self) -> None:
        """Its follower notes the number of its first process too, but a stop may be earlier."""
        failed = self.client_status is not None and self.client_status >= CLIENT_FAILED
        if self.client_over and not self.asked and not failed and not self.pid_in(PID):
            self.asked = True
            self.ask()

    def is_up_at_a_stop(self) -> bool:
        """The daemon may have started it, although its client has not ended yet."""
        if not self.is_up() and self.client_status is None:
            self.ask()
        return self.is_up()

    def ask(self) -> int | None:
        """Note what the daemon knows of it. Returns its exit status, if it is over."""
        state, pid, code = look_at(self.program, self.name, ASKED_S)
        self.executed = self.executed or state in (*ALIVE, *OVER)
        if state in ALIVE and pid:
            with contextlib.suppress(OSError):
                write_file(os.path.join(self.directory, PID), b"%d" % pid)
        return code if state in OVER else None

    def tell_end(self) -> None:
        """Instead of its follower, which takes too long: once the container is removed, nobody knows it."""
        code = self.ask()
        if code is not None:
            with contextlib.suppress(OSError):
                write_file(os.path.join(self.directory, END), json.dumps({"code": code}).encode())

    def log_size(self) -> int:
        try:
            return os.stat(os.path.join(self.directory, "log")).st_size
        except OSError:
            return 0

    def wait_until_told(self, reap: Callable[[], None]) -> None:
        """After it was killed: until its follower has copied the rest of its output, and written how it ended."""
        size, until, alone_until = -1, 0.0, time.monotonic() + FORKED_S
        while not self.recorded_end() and not self.given_up():
            now = time.monotonic()
            if self.log_size() != size:
                size, until = self.log_size(), now + COPIED_S
            if self.is_followed():
                alone_until = now + FORKED_S
            if now > min(until, alone_until):
                self.tell_end()
                break
            reap()
            time.sleep(0.01)
        reap()

    def is_followed(self) -> bool:
        lock = take_lock(os.path.join(self.directory, LOCK))
        if lock >= 0:
            os.close(lock)
        return lock < 0

    def remove(self, reap: Callable[[], None], kill_engine: Callable[[], object]) -> str:
        """The daemon may be making it for a client that was killed: then it is removed once it is there. One that takes
        very long is removed when the run is forgotten: nothing in it is ever executed."""
        if self.client_status is None and not self.recorded_end():
            kill_engine()  # its client may be there still
            reap()
            self.ask()
        if self.was_made():
            self.kill()
            self.wait_until_told(reap)
            self.removed = True
            words = super().remove(reap, kill_engine)
            unlink(os.path.join(self.directory, HEAD))
            return words
        self.removed = True
        until = time.monotonic() + KILLED_S
        while True:
            words = super().remove(reap, kill_engine)
            if words:
                return words
            if time.monotonic() > until:
                break
            time.sleep(0.2)
        if not self.never_up():
            with contextlib.suppress(OSError):
                write_file(os.path.join(self.directory, MAY_COME), b"")
        return ""
