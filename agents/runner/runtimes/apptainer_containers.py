"""The container of one run, made by Apptainer: it has no daemon, and all its processes are children of the keepers.

The client becomes the parent of the program, ends as the program ended (also by the same signal), and takes the
program with it when it is killed. Nothing is kept for a container: when its processes are gone, so is all of it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from typing import Any, Callable, Dict, List, Mapping, Tuple

from agents.runner.files import write_file
from agents.runner.processes import (
    Process,
    all_processes,
    children_of,
    descendants,
    read_process,
    signal_process,
)
from agents.runner.runs.orders import login_env
from agents.runner.runtimes.apptainer_options import has_begun
from agents.runner.runtimes.containers import PASS_SIGNALS_ON, Container, name_of_program

# By which the client says that it has executed nothing, and how its last words begin. A program may end with these too:
# so they count only before the container was made (`has_begun`), or where they say that its program is none.
CLIENT_FAILED = (1, 255)
_ESCAPES = re.compile(r"\x1b\[\d*m")
_LAST_WORDS = re.compile(r"(?:FATAL:   |ERROR  : )(.*?)\s*\Z")
# The engine's own programs: one that makes the container, and those that show a part of it as a file system.
_STARTER = re.compile(r".*/apptainer/bin/starter(?:-suid)?(?: \(deleted\))?\Z")
_FILE_SYSTEMS = re.compile(r"(?:fuse-overlayfs|squashfuse(?:_ll)?|fuse2fs|gocryptfs)\Z")
# By which the dynamic linker would load other libraries, and how their names begin until a shell is in the container.
_FOR_THE_LINKER = re.compile(r"LD_\w+|GLIBC_TUNABLES", re.ASCII)
_WAITING = "TRAINYARD_WAITING_"
# All that the engine says of a program that it cannot execute, in a container that it has made.
NOT_EXECUTED = re.compile(
    r'"[^"]*": executable file not found in \$PATH|stat /.*: (?:no such file or directory|permission denied)'
    r"|permission denied|is a directory|exec .* failed: .*"
)


class ApptainerContainer(Container):
    removed = False

    def is_up(self) -> bool:
        if self.first is None:
            self.first = self.find_program()
            if self.first is not None:
                with contextlib.suppress(OSError):
                    write_file(os.path.join(self.place, "container.pid"), b"%d" % self.first.pid)
        return self.first is not None

    def find_program(self) -> Process | None:
        """The child of the client that is not the engine's own any more."""
        if not self.client or not _is_starter(_program_of(self.client)):
            return None  # what it starts until then is part of itself
        for pid in children_of(self.client):
            found = read_process(pid)
            if found is not None and found.state not in "ZX" and not is_of_engine(pid):
                return found
        return None

    def pid_in(self, name: str) -> int:
        return self.first.pid if self.first is not None else super().pid_in(name)

    def was_made(self) -> bool:
        return self.first is not None

    def end_of(self, client: int, pid: int, code: int, status: int) -> Tuple[int, int] | None:
        if pid != client:
            return None
        self.client_status = status if code == os.CLD_EXITED else -status
        if self.never_up() or (self.removed and self.first is None):
            return None
        return code, status

    def never_up(self) -> bool:
        """Also if nobody has seen the program: one that ends at once may end as the client would."""
        if self.client_status not in CLIENT_FAILED or self.first is not None:
            return False
        words = self.last_words()
        return bool(NOT_EXECUTED.fullmatch(words) if has_begun(self.directory) else words)

    def given_up(self) -> bool:
        return self.never_up() or (self.client_status is not None and self.removed and self.first is None)

    def last_words(self) -> str:
        """Those of the engine, if they are the last of the log."""
        try:
            with open(os.path.join(self.directory, "log"), "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - 4096))
                return last_words(log.read(4096).decode("utf-8", "replace"))
        except OSError:
            return ""

    def refusal(self, log: int) -> Tuple[str, str]:
        return ("exec_failed" if has_begun(self.directory) else "runtime"), self.last_words()

    def programs(self, everyone: Dict[int, Process]) -> List[Process]:
        """All that are not the engine's own: it would pass a signal on to a program that was told already."""
        if not self.is_up():
            return []
        found = [each for each in self.below_keeper(everyone) if not is_of_engine(each.pid)]
        return [each for each in found if name_of_program(each.pid) not in PASS_SIGNALS_ON] or found

    def below_keeper(self, everyone: Dict[int, Process]) -> List[Process]:
        found = descendants({os.getpid()}, everyone)
        return [everyone[pid] for pid in found if everyone[pid].state not in "ZX"]

    def monitor_lives(self) -> bool:
        return False

    def judge_oom(
        self, by_host: Tuple[bool | None, str, str], limited: bool | None
    ) -> Tuple[bool | None, str, str]:
        """Its processes are in the cgroup of the run, as those of a program of the host."""
        return by_host

    def remove(self, reap: Callable[[], None], kill_engine: Callable[[], object]) -> str:
        """Nothing is kept. Whether its program was executed has to be known before its processes are killed."""
        if self.first is None:
            for each in self.below_keeper(all_processes()):
                signal_process(each.pid, each.ticks, signal.SIGSTOP)
            self.is_up()
        self.removed = True
        return ""


def last_words(text: str) -> str:
    """Why the engine has executed nothing; "" if it does not say so at the end of its output."""
    lines = [line for line in _ESCAPES.sub("", text).splitlines() if line.strip()]
    found = _LAST_WORDS.match(lines[-1]) if lines else None
    return found.group(1)[:1000] if found else ""


def is_of_engine(pid: int) -> bool:
    program = _program_of(pid)
    return not program or _is_starter(program) or bool(_FILE_SYSTEMS.match(os.path.basename(program)))


def _is_starter(program: str) -> bool:
    return bool(_STARTER.match(program))


def _program_of(pid: int) -> str:
    """The path of a process's program; "" for one that has ended, or that belongs to root."""
    try:
        return os.readlink("/proc/%d/exe" % pid)
    except OSError:
        return ""


def shell_words(pid: int) -> List[str]:
    """Those by which a program joins the container of this process. The program of the host is meant, wherever the
    container's PATH leads. Raises ValueError without it."""
    program = shutil.which("nsenter", path=login_env()["PATH"])
    if program is None:
        raise ValueError("nsenter (of util-linux) is not on the PATH of this login")
    words = [program, "--target", "%d" % pid, "--mount", "--wd"]
    if os.readlink("/proc/%d/ns/user" % pid) != os.readlink("/proc/self/ns/user"):
        words += ["--user", "--preserve-credentials"]
    return [*words, "--"]


def for_the_program(argv: List[str], env: Mapping[str, str]) -> Tuple[List[str], Dict[str, str]]:
    """(argument vector, environment) in which the variables of the dynamic linker wait under other names until the
    program is in the container: the libraries that they name are there, and not for the host's `nsenter`."""
    names = sorted(filter(_FOR_THE_LINKER.fullmatch, env))
    if not names:
        return argv, dict(env)
    kept = {(_WAITING + name if name in names else name): value for name, value in env.items()}
    given = " ".join('%s="$%s%s"' % (name, _WAITING, name) for name in names)
    script = 'export %s; unset %s; exec "$@"' % (given, " ".join(_WAITING + name for name in names))
    return ["sh", "-c", script, "sh", *argv], kept


def variables_of(pid: int) -> Dict[str, str]:
    """The variables with which this process was executed."""
    with open("/proc/%d/environ" % pid, "rb") as file:
        pairs = [each.partition(b"=") for each in file.read().split(b"\0")]
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if name and equals}


def shell_in(
    facts: Mapping[str, Any], argv: List[str], more: Mapping[str, str]
) -> Tuple[List[str], Dict[str, str]]:
    """(argument vector, environment) of a program that joins the container. Raises ValueError."""
    pid, found = int(facts["pid"] or 0), None
    with contextlib.suppress(OSError):
        found = read_process(pid)
        if found is not None and found.ticks == facts["ticks"]:
            argv, env = for_the_program(argv, {**variables_of(pid), **more})
            return [*shell_words(pid), *argv], env
    raise ValueError("the program of this run has just ended")
