"""The terminal of a shell and the program on it: opened, typed into, read, hung up."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import termios
from typing import Any, Dict, List, NamedTuple, NoReturn, Tuple

from agents.runner.forks import close_all_but, default_signals, execute
from agents.runner.processes import all_processes, has_variable, signal_process
from agents.runner.runs.containment import join_cgroup

READ_BYTES, PIECE_BYTES = 32 * 1024, 16 * 1024
# The kernel gives about 4 KiB at a time. After so much there is probably more; after an echo there is not.
MORE_BYTES = 1024
# Characters outside of ASCII are erased as one (termios.h; the module `termios` has no name for it).
_IUTF8 = 0o40000


class Program(NamedTuple):
    """What runs in a shell: command, environment, directory, and the cgroups of its run. `variable` (NAME=VALUE): what
    its processes have that are not below us, as those in a container."""

    argv: List[str]
    env: Dict[str, str]
    work: str
    groups: List[str]
    variable: str = ""


class Terminal:
    def __init__(self, program: Program, size: Tuple[int, int]) -> None:
        self.master, slave = os.openpty()
        attributes = termios.tcgetattr(slave)
        attributes[0] |= _IUTF8
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        self.size, self.variable = (0, 0), program.variable
        self.resize(*size)
        os.set_blocking(self.master, False)
        self.unwritten = b""
        self.pid = os.fork()
        if self.pid == 0:
            _execute(program, slave)
        os.close(slave)

    def read(self) -> bytes | None:
        """Output; b"" if there is none now, None when nobody has the terminal open any more."""
        data = b""
        try:
            while True:
                piece = os.read(self.master, PIECE_BYTES)
                data = data + piece if data else piece
                if len(piece) < MORE_BYTES or len(data) >= READ_BYTES:
                    return data or None
        except BlockingIOError:
            return data
        except OSError:
            return data or None  # after the last output, the next call tells the end

    def write(self, data: bytes) -> bool:
        """Type. False if the terminal does not take all of it now: the rest waits in `unwritten`."""
        if self.unwritten:
            self.unwritten += data
            return False
        try:
            written = os.write(self.master, data)
        except BlockingIOError:
            written = 0
        except OSError:
            return True  # the program is gone; its end is noticed by `read`
        if written < len(data):
            self.unwritten = data[written:]
        return not self.unwritten

    def write_rest(self) -> None:
        rest, self.unwritten = self.unwritten, b""
        self.write(rest)

    def resize(self, columns: int, rows: int) -> bool:
        """Set the size. The kernel sends SIGWINCH if it is another one. False if it is the same."""
        if (columns, rows) == self.size:
            return False
        self.size = (columns, rows)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        return True

    def draw_again(self) -> None:
        """Have a program that uses the whole screen draw it: it does so when the size changes."""
        columns, rows = self.size
        self.resize(columns, rows - 1 if rows > 1 else rows + 1)
        self.resize(columns, rows)

    def hang_up(self) -> None:
        """What the kernel does when a terminal goes away: the shell passes SIGHUP on to its jobs."""
        groups = {self.pid}
        with contextlib.suppress(OSError):
            groups.add(os.tcgetpgrp(self.master))
        for group in groups - {0}:
            for signum in (signal.SIGHUP, signal.SIGCONT):
                with contextlib.suppress(OSError):
                    os.killpg(group, signum)

    def kill_session(self) -> None:
        """Kill all processes of the terminal's session: a program may ignore SIGHUP."""
        for pid, ticks in session_of(self.pid):
            signal_process(pid, ticks, signal.SIGKILL)

    def kill_others(self) -> None:
        """Kill the processes of the shell in its container: an engine leaves them there when its client ends."""
        for process in all_processes().values() if self.variable else ():
            if has_variable(process.pid, self.variable):
                signal_process(process.pid, process.ticks, signal.SIGKILL)

    def reap(self) -> int | None:
        """The wait status of the program, once it has ended."""
        try:
            done, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        return status if done else None

    def close(self) -> None:
        os.close(self.master)
        self.kill_others()


def end_of(status: int, reason: str) -> Dict[str, Any]:
    """What is told of the end of a program by its wait status."""
    if os.WIFSIGNALED(status):
        return {"status": None, "signal": os.WTERMSIG(status), "reason": reason}
    return {"status": os.WEXITSTATUS(status), "signal": None, "reason": reason}


def session_of(leader: int) -> List[Tuple[int, int]]:
    """(pid, start ticks) of all processes in the session of this process."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError), open("/proc/%s/stat" % name, "rb") as file:
                fields = file.read().rsplit(b")", 1)[1].split()
                if int(fields[3]) == leader:
                    found.append((int(name), int(fields[19])))
    return found


def _execute(program: Program, slave: int) -> NoReturn:
    """Become the program, in a session of its own, on the terminal, in the cgroups and the directory of the run."""
    try:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for fd in (0, 1, 2):
            os.dup2(slave, fd)
        for group in program.groups:
            join_cgroup(group)
        default_signals()
        close_all_but({0, 1, 2})
        os.chdir(program.work)
        execute(program.argv, program.env)
    except OSError as error:
        os.write(2, ("%s: %s\r\n" % (program.argv[0], error.strerror)).encode())
    finally:
        os._exit(127)
