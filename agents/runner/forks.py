"""Forks of the runner itself: detached ones, which outlive it (keepers), and ones with a timeout."""

from __future__ import annotations

# `signal` wraps this and makes an enum of each number. In a fresh fork that takes longer than everything else.
import _signal  # type: ignore[import-not-found]
import contextlib
import functools
import os
import signal
import time
import traceback
from typing import Callable, Dict, List, NoReturn, Set, Tuple

from agents.runner.linux import retitle

_POLITE = [
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGALRM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
]


@functools.lru_cache(maxsize=None)
def ignored_signals() -> Tuple[int, ...]:
    """The signals that this program ignores because Python does (SIGPIPE), or because its parent did."""
    return tuple(s for s in range(1, signal.NSIG) if signal.getsignal(s) is signal.SIG_IGN)


def default_signals() -> None:
    """Call before another program is executed: no signal is ignored or blocked. Handlers do not survive exec anyway."""
    for signum in ignored_signals():
        _signal.signal(signum, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def close_all_but(keep: Set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd not in keep:
            os.closerange(fd, fd + 1)  # which ignores errors: one descriptor was that of the listing itself


def has_no_child() -> bool:
    """Whether this process has no child, dead ones apart. One that hangs, of a look at a GPU for example, is one."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return False
    except ChildProcessError:
        return True


def inheritable() -> Set[int]:
    """The descriptors that survive exec. The locks of the GPUs do: they are held while any process of the run may
    live."""
    found = set()
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # that of the listing itself
            if os.get_inheritable(fd):
                found.add(fd)
    return found


def execute(command: List[str], env: Dict[str, str]) -> NoReturn:
    """Execute `command`, looked for in the PATH of its own environment. As os.execvpe, but faster."""
    if "/" in command[0]:
        os.execve(command[0], command, env)
    problem: OSError | None = None
    for directory in env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(os.path.join(directory, command[0]), command, env)
        except (FileNotFoundError, NotADirectoryError) as error:
            missing: OSError = error
        except OSError as error:
            problem = problem or error
    raise problem or missing


def detach(keep: Set[int], title: str) -> None:
    """Make a fork of serve independent of it: own session, no descriptors but `keep`, deaf to polite signals."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    close_all_but(keep | {0, 1, 2})
    signal.set_wakeup_fd(-1)
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _POLITE)
    os.chdir("/")
    retitle(title)


def wake_on_signals(write: int) -> None:
    """From now on each exit of a child, and each lease that is to be given up, writes to this descriptor. Forks inherit
    the handlers, but not the descriptor."""
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    if not _heeded:
        for signum in (signal.SIGCHLD, signal.SIGIO):
            signal.signal(signum, lambda signum, frame: None)
        _heeded.append(True)


_heeded: List[bool] = []


def fork_detached(act: Callable[[], None], directory: str, keep: Set[int], title: str) -> int:
    """Run `act` in a process of its own that outlives this one. An exception there is written to keeper.err."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        detach(keep, title)
        act()
        status = 0
    except BaseException:
        write_traceback(directory)
    finally:
        os._exit(status)


def write_traceback(directory: str) -> None:
    """Append the current exception to keeper.err."""
    with contextlib.suppress(OSError), open(os.path.join(directory, "keeper.err"), "a") as file:
        if file.tell() < 64 * 1024:
            traceback.print_exc(file=file)


def run_with_timeout(act: Callable[[], None], patience_s: float) -> bool:
    """Have a child do it. False if it failed or hangs: then it is killed, and left behind if even that takes long."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    until, pause = time.monotonic() + patience_s, 0.0005
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(pause)
        pause = min(pause * 1.5, 0.005)
    os.kill(pid, signal.SIGKILL)
    return False
