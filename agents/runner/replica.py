"""The replica's process on its way to its command, and what it is known to have got to."""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from typing import Dict, List, NamedTuple, NoReturn, Tuple

from agents.runner.containment import join_cgroup
from agents.runner.forks import close_all_but, default_signals, execute
from agents.runner.linux import retitle
from agents.runner.namespaces import error_bytes, mount_proc, unshare_pid_namespace

# What the replica's process has got to before it became the command, in memory shared by keepers and replica.
BORN, GO, NOT_STARTED, FAILED = 1, 2, 3, 4
_PROGRESS = struct.Struct("<iii256s")  # pid, state, outside its cgroup, words
# Behind it, of a run in a PID namespace: that one's first process, which alone sees the replica end, and what it saw.
_INIT, _END = struct.Struct("<i"), struct.Struct("<iii")  # pid; told, code, status
_INIT_AT, _END_AT = 512, 768


class ReplicaSetup(NamedTuple):
    """Where a command is to find itself."""

    log: int
    work: str
    cgroups: Tuple[str | None, str | None]  # its own, and the one that counts its memory
    umask: int
    run: str = ""


class Replica:
    """One process that waits at a gate before it becomes the command, as its keepers know it.

    Until a byte comes through the gate, the command was never executed, whoever dies. `started` closes when it was.
    """

    def __init__(self) -> None:
        self.started, self._started_write = os.pipe()
        self._gate_read, self._gate = os.pipe()
        self._shared = mmap.mmap(-1, 4096)
        self.pid = 0  # set where the process is known outside by another number than to itself

    def release_gate(self) -> None:
        """The outer keeper's part ends here: the gate is the inner one's, or its death would go unnoticed."""
        os.close(self._started_write)
        os.close(self._gate)

    def spawn(self, command: List[str], env: Dict[str, str], setup: ReplicaSetup) -> int:
        pid = os.fork()
        if pid == 0:
            self._exec(command, env, setup)
        os.close(self._gate_read)
        os.close(self._started_write)
        return pid

    def spawn_in_namespace(
        self, command: List[str], env: Dict[str, str], setup: ReplicaSetup
    ) -> Tuple[int, str]:
        """As `spawn`, below the first process of a PID namespace, which becomes our child: (pid, "").

        (0, why) where the host does not let us: then nobody was born, and the board is as before.
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
                os._exit(0)  # its child is the keeper's now, who is a subreaper
        os.close(born_write)
        with open(born, "rb") as file:
            words = file.read()
        os.waitpid(middle, 0)
        if words != b"+":
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.waitpid(-1, 0)
            self._shared[:] = bytes(len(self._shared))
            return 0, words.decode("utf-8", "replace") or "it was killed"
        os.close(self._gate_read)
        os.close(self._started_write)
        return self.progress()[0], ""

    def _run_init(
        self, command: List[str], env: Dict[str, str], setup: ReplicaSetup, outer_proc: int, born_write: int
    ) -> NoReturn:
        """The first process of a PID namespace: buries orphans, tells how the replica ended, and ends with all others.

        Whoever else is left then is killed by the kernel, and this one is not over before they are.
        """
        try:
            retitle("trainyard-init %s" % setup.run)
            os.close(self._gate)
            mount_proc()
            _INIT.pack_into(self._shared, _INIT_AT, int(os.readlink("self", dir_fd=outer_proc)))
            pid = os.fork()
            if pid == 0:
                self._exec(command, env, setup, outer_proc, born_write)
            close_all_but({fd for fd in map(int, os.listdir("/proc/self/fd")) if _is_inheritable(fd)})
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
        os.write(self._gate, b"g")

    def close_gate(self) -> None:
        os.close(self._gate)

    def _exec(
        self,
        command: List[str],
        env: Dict[str, str],
        setup: ReplicaSetup,
        outer_proc: int = -1,
        born_write: int = -1,
    ) -> NoReturn:
        """In the replica's process: everything up to exec. What fails is told on the board."""
        try:
            os.setsid()
            if outer_proc < 0:
                self.report(BORN)
                os.close(self._gate)  # ours, or we would never see the keeper's end close
            else:
                self.pid = int(os.readlink("self", dir_fd=outer_proc))  # as our keepers know us
                self.report(BORN)
                os.write(born_write, b"+")
                os.close(born_write)
            outside = 0
            for number, group in enumerate(setup.cgroups):
                outside |= 1 << number if group and not join_cgroup(group) else 0
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(setup.log, 1)
            os.dup2(setup.log, 2)
            os.chdir(setup.work)
            default_signals()
            if os.read(self._gate_read, 1) != b"g":
                self.report(NOT_STARTED)  # the keeper died before it let us go: this command never was
                os._exit(0)
            os.umask(setup.umask)
            self.report(GO, outside)
            execute(command, env)
        except OSError as error:
            self.report(FAILED, words="%s: %s" % (error.strerror, command[0]))
        except BaseException as error:
            self.report(FAILED, words=repr(error))
        finally:
            os._exit(127)

    def report(self, state: int, outside: int = 0, words: str = "") -> None:
        data = words.encode("utf-8", "replace")[:255]
        self._shared[: _PROGRESS.size] = _PROGRESS.pack(self.pid or os.getpid(), state, outside, data)

    def progress(self) -> Tuple[int, int, int, str]:
        """(pid, state, which cgroups it could not join, words) of the replica's process before exec."""
        pid, state, outside, words = _PROGRESS.unpack(self._shared[: _PROGRESS.size])
        return pid, state, outside, words.rstrip(b"\0").decode("utf-8", "replace")

    def init_pid(self) -> int:
        """The pid of its namespace's first process; 0 of a replica that has no namespace of its own."""
        pid: int = _INIT.unpack_from(self._shared, _INIT_AT)[0]
        return pid

    def reported_end(self) -> Tuple[int, int] | None:
        """(code, status) of the replica as its namespace's first process saw it end."""
        told, code, status = _END.unpack_from(self._shared, _END_AT)
        return (code, status) if told else None


def _is_inheritable(fd: int) -> bool:
    """The GPUs' locks are: held for as long as anybody of the run may live."""
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False
