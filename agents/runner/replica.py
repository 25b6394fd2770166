"""The replica's process on its way to its command, and what it is known to have got to."""

from __future__ import annotations

import mmap
import os
import struct
from typing import Dict, List, NamedTuple, NoReturn, Tuple

from agents.runner.containment import join_cgroup
from agents.runner.forks import default_signals, execute

# What the replica's process has got to before it became the command, in memory shared by keepers and replica.
BORN, GO, NEVER, FAILED = 1, 2, 3, 4
_BOARD = struct.Struct("<iii256s")  # pid, state, outside its cgroup, words


class Scene(NamedTuple):
    """Where a command is to find itself."""

    log: int
    work: str
    cgroups: Tuple[str | None, str | None]  # its own, and the one that counts its memory
    umask: int


class Replica:
    """One process that waits at a gate before it becomes the command, as its keepers know it.

    Until a byte comes through the gate, the command was never executed, whoever dies. `started` closes when it was.
    """

    def __init__(self) -> None:
        self.started, self._started_write = os.pipe()
        self._gate_read, self._gate = os.pipe()
        self._board = mmap.mmap(-1, 4096)

    def leave(self) -> None:
        """The outer keeper's part ends here: the gate is the inner one's, or its death would go unnoticed."""
        os.close(self._started_write)
        os.close(self._gate)

    def spawn(self, command: List[str], env: Dict[str, str], scene: Scene) -> int:
        pid = os.fork()
        if pid == 0:
            self._become(command, env, scene)
        os.close(self._gate_read)
        os.close(self._started_write)
        return pid

    def let_go(self) -> None:
        os.write(self._gate, b"g")

    def close_gate(self) -> None:
        os.close(self._gate)

    def _become(self, command: List[str], env: Dict[str, str], scene: Scene) -> NoReturn:
        """In the replica's process: everything up to exec. What fails is told on the board."""
        try:
            os.setsid()
            self.pin(BORN)
            os.close(self._gate)  # ours, or we would never see the keeper's end close
            outside = 0
            for number, group in enumerate(scene.cgroups):
                outside |= 1 << number if group and not join_cgroup(group) else 0
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(scene.log, 1)
            os.dup2(scene.log, 2)
            os.chdir(scene.work)
            default_signals()
            if os.read(self._gate_read, 1) != b"g":
                self.pin(NEVER)  # the keeper died before it let us go: this command never was
                os._exit(0)
            os.umask(scene.umask)
            self.pin(GO, outside)
            execute(command, env)
        except OSError as error:
            self.pin(FAILED, words="%s: %s" % (error.strerror, command[0]))
        except BaseException as error:
            self.pin(FAILED, words=repr(error))
        finally:
            os._exit(127)

    def pin(self, state: int, outside: int = 0, words: str = "") -> None:
        data = words.encode("utf-8", "replace")[:255]
        self._board[: _BOARD.size] = _BOARD.pack(os.getpid(), state, outside, data)

    def pinned(self) -> Tuple[int, int, int, str]:
        """(pid, state, which cgroups it could not join, words) of the replica's process before exec."""
        pid, state, outside, words = _BOARD.unpack(self._board[: _BOARD.size])
        return pid, state, outside, words.rstrip(b"\0").decode("utf-8", "replace")
