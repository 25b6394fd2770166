"""The replica's process on its way to its command, and the record of what it has reached."""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from typing import Dict, List, NamedTuple, NoReturn, Tuple

from agents.runner.forks import close_all_but, default_signals, execute, inheritable
from agents.runner.linux import retitle
from agents.runner.runs.containment import fork_into, join_cgroup
from agents.runner.runs.namespaces import error_bytes, mount_proc, unshare_pid_namespace

# What the replica's process has reached before exec, on a page of memory that keepers and replica share.
BORN, GO, NOT_STARTED, FAILED = 1, 2, 3, 4
_PROGRESS = struct.Struct("<iii256s")  # pid, state, which cgroups it could not join, error text
# Behind it, for a run in a PID namespace: the first process there, which alone sees the replica end, and what it saw.
_INIT, _END = struct.Struct("<i"), struct.Struct("<iii")  # pid; reported, code, status
_INIT_AT, _END_AT = 512, 768


class ReplicaSetup(NamedTuple):
    """The log, work directory, cgroups and umask that a command starts with. `silent`: what it prints is for nobody,
    but its errors are for the log."""

    log: int
    work: str
    cgroups: Tuple[str | None, str | None]  # its own, and the one that counts its memory
    umask: int
    run: str = ""
    silent: bool = False


class Replica:
    """One process that waits at a gate before it executes the command, as its keepers know it.

    Until a byte comes through the gate, the command was never executed, whoever dies. `started` closes when it was.
    """

    def __init__(self, page: mmap.mmap, started: int = -1) -> None:
        """`started`: that of a replica whose gate another keeper had."""
        self._shared = page
        self.pid = 0  # set where the process has another pid outside its namespace
        self.started, self._started_write, self._gate_read, self._gate = started, -1, -1, -1
        if started < 0:
            self._shared[:] = bytes(len(self._shared))
            self.started, self._started_write = os.pipe()
            self._gate_read, self._gate = os.pipe()

    def spawn(self, command: List[str], env: Dict[str, str], setup: ReplicaSetup) -> int:
        """Fork the replica's process. Returns its pid."""
        pid, began_in = fork_into(setup.cgroups[0])
        if pid == 0:
            self._exec(command, env, setup, began_in)
        os.close(self._gate_read)
        os.close(self._started_write)
        return pid

    def spawn_in_namespace(
        self, command: List[str], env: Dict[str, str], setup: ReplicaSetup
    ) -> Tuple[int, str]:
        """As `spawn`, below the first process of a PID namespace, which becomes our child: (pid, "").

        (0, why) where the host does not allow it: then no process exists, and the shared page is as before.
        """
        born, born_write = os.pipe()
        middle = os.fork()
        if middle == 0:
            try:
                outer_proc = os.open("/proc", os.O_RDONLY | os.O_CLOEXEC)
                unshare_pid_namespace()
                if os.fork() == 0:
                    self._run_init(command, env, setup, outer_proc, born_write)
            except BaseException as error:
                os.write(born_write, error_bytes(error))
            finally:
                os._exit(0)  # its child is now a child of the keeper, which is a subreaper
        os.close(born_write)
        with open(born, "rb") as file:
            text = file.read()
        os.waitpid(middle, 0)
        if text != b"+":
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.waitpid(-1, 0)
            self._shared[:] = bytes(len(self._shared))
            return 0, text.decode("utf-8", "replace") or "it was killed"
        os.close(self._gate_read)
        os.close(self._started_write)
        return self.progress()[0], ""

    def _run_init(
        self, command: List[str], env: Dict[str, str], setup: ReplicaSetup, outer_proc: int, born_write: int
    ) -> NoReturn:
        """The first process of a PID namespace: reaps orphans, reports how the replica ended, and ends together with
        all others.

        The kernel kills every process that is left in the namespace then, and this process is not over before they are.
        """
        try:
            retitle("trainyard-init %s" % setup.run)
            os.close(self._gate)
            mount_proc()
            _INIT.pack_into(self._shared, _INIT_AT, int(os.readlink("self", dir_fd=outer_proc)))
            pid, began_in = fork_into(setup.cgroups[0])
            if pid == 0:
                self._exec(command, env, setup, began_in, outer_proc, born_write)
            close_all_but(inheritable())
            while True:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
                if found is not None and found.si_pid == pid:
                    _END.pack_into(self._shared, _END_AT, 0, found.si_code, found.si_status)
                    _END.pack_into(self._shared, _END_AT, 1, found.si_code, found.si_status)
                    break
                if found is not None:
                    os.waitpid(found.si_pid, 0)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(born_write, error_bytes(error))
        finally:
            os._exit(0)

    def open_gate(self) -> None:
        """Let the replica's process execute the command."""
        os.write(self._gate, b"g")

    def close_gate(self) -> None:
        """Close the gate: a replica that has not passed it never executes the command."""
        os.close(self._gate)

    def _exec(
        self,
        command: List[str],
        env: Dict[str, str],
        setup: ReplicaSetup,
        began_in: str | None,
        outer_proc: int = -1,
        born_write: int = -1,
    ) -> NoReturn:
        """Prepare the process and exec its command. A failure is written to the memory shared with the keepers."""
        try:
            os.setsid()
            if outer_proc < 0:
                self.report(BORN)
                os.close(self._gate)  # our copy, or we would never see the keeper's end close
            else:
                self.pid = int(os.readlink("self", dir_fd=outer_proc))  # the pid by which the keepers know us
                self.report(BORN)
                os.write(born_write, b"+")
                os.close(born_write)
            outside = 0
            for number, group in enumerate(setup.cgroups):
                inside = group is None or group == began_in or join_cgroup(group)
                outside |= 0 if inside else 1 << number
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null if setup.silent else setup.log, 1)
            os.dup2(setup.log, 2)
            os.chdir(setup.work)
            default_signals()
            if os.read(self._gate_read, 1) != b"g":
                # The keeper died before it opened the gate: the command was never executed.
                self.report(NOT_STARTED)
                os._exit(0)
            os.umask(setup.umask)
            self.report(GO, outside)
            execute(command, env)
        except OSError as error:
            self.report(FAILED, text="%s: %s" % (error.strerror, command[0]))
        except BaseException as error:
            self.report(FAILED, text=repr(error))
        finally:
            os._exit(127)

    def report(self, state: int, outside: int = 0, text: str = "") -> None:
        """Record on the shared page what the replica's process has reached."""
        data = text.encode("utf-8", "replace")[:255]
        self._shared[: _PROGRESS.size] = _PROGRESS.pack(self.pid or os.getpid(), state, outside, data)

    def progress(self) -> Tuple[int, int, int, str]:
        """(pid, state, which cgroups it could not join, error text) of the replica's process before exec."""
        pid, state, outside, text = _PROGRESS.unpack(self._shared[: _PROGRESS.size])
        return pid, state, outside, text.rstrip(b"\0").decode("utf-8", "replace")

    def init_pid(self) -> int:
        """The pid of its namespace's first process; 0 for a replica that has no namespace of its own."""
        pid: int = _INIT.unpack_from(self._shared, _INIT_AT)[0]
        return pid

    def reported_end(self) -> Tuple[int, int] | None:
        """(code, status) of the replica as its namespace's first process saw it end."""
        reported, code, status = _END.unpack_from(self._shared, _END_AT)
        return (code, status) if reported else None
