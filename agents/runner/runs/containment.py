"""Containment: a cgroup for each run where the host has delegated one to the login; and whether a run was
OOM-killed."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from typing import Any, List, Mapping, NamedTuple, Set, Tuple

from agents.runner.linux import fork_into_cgroup, read_kernel_file

# Beside the cgroups of runs: the other processes of this login, the runners too.
LOGIN = "trainyard.login"
MOVES = 5
PROBE_KEPT_S = 3600


@functools.lru_cache(maxsize=None)
def delegated_cgroup(controller: str = "") -> str | None:
    """The directory of our own cgroup, of v2 or of a controller of v1, if we may make children in it."""
    if os.environ.get("TRAINYARD_NO_CGROUP"):
        return None
    try:
        with open("/proc/self/cgroup") as file:
            rows = [line.rstrip("\n").split(":", 2) for line in file]
        with open("/proc/self/mountinfo") as file:
            mounted = [line.split(" - ") for line in file]
    except OSError:
        return None
    own = [row[2] for row in rows if len(row) == 3 and controller in row[1].split(",")]
    for mount in mounted:
        kind, _, options = mount[-1].split()[:3]
        if (
            own
            and kind == ("cgroup" if controller else "cgroup2")
            and (not controller or controller in options.split(","))
        ):
            root, point = mount[0].split()[3:5]
            below = own[0][len(root) :] if root != "/" and own[0].startswith(root) else own[0]
            path = os.path.normpath(point + "/" + below)
            if os.path.basename(path) == LOGIN:
                path = os.path.dirname(path)
            if os.access(path, os.W_OK) and os.path.exists(os.path.join(path, "cgroup.procs")):
                return path
    return None


def cgroup_path(run: str, mark: str, controller: str = "") -> str | None:
    """Where a run's cgroup is. The mark's random part makes it unique: no run joins what another one left there."""
    parent = delegated_cgroup(controller)
    return os.path.join(parent, "trainyard.%s.%s" % (run, mark[:16])) if parent else None


def make_cgroup(path: str | None) -> str | None:
    """Make a run's cgroup (v2). None where that is not possible, or where cgroup.kill is missing."""
    try:
        if path is None:
            return None
        delegate_controller(os.path.dirname(path), "memory")
        os.mkdir(path)
    except OSError:
        return None
    if not os.access(os.path.join(path, "cgroup.kill"), os.W_OK):  # before Linux 5.14
        remove_cgroup(path)
        return None
    return path


def delegate_controller(parent: str, controller: str) -> bool:
    """Let the children of a cgroup (v2) have the controller.

    A cgroup may delegate only while it holds no process itself. So the processes that are in it, those of this login,
    move into a child of their own, where nothing is different for them.
    """
    if try_write(os.path.join(parent, "cgroup.subtree_control"), "+" + controller):
        return True
    try:
        with open(os.path.join(parent, "cgroup.controllers")) as file:
            if controller not in file.read().split():
                return False
        login = os.path.join(parent, LOGIN)
        with contextlib.suppress(FileExistsError):
            os.mkdir(login)
        for _ in range(MOVES):  # a process that forks meanwhile leaves a child behind
            with open(os.path.join(parent, "cgroup.procs")) as file:
                for pid in file.read().split():
                    try_write(os.path.join(login, "cgroup.procs"), pid)
            if try_write(os.path.join(parent, "cgroup.subtree_control"), "+" + controller):
                return True
    except OSError:
        pass
    return False


def limit_memory(own: str | None, run: str, mark: str, memory_mb: int | None) -> Tuple[str | None, bool]:
    """(the cgroup that counts this run's memory, is the limit enforced?): its own of v2, or one of v1 beside it."""
    limit = str((memory_mb or 0) << 20)
    if own and os.path.exists(os.path.join(own, "memory.events")):
        # A program of which a part was killed only hangs.
        try_write(os.path.join(own, "memory.oom.group"), "1")
        return own, memory_mb is not None and try_write(os.path.join(own, "memory.max"), limit)
    # To join a cgroup of v1 costs a start milliseconds, so it is done for limits only.
    path = cgroup_path(run, mark, "memory") if memory_mb is not None else None
    try:
        if path is None:
            return None, False
        os.mkdir(path)
    except OSError:
        return None, False
    return path, memory_mb is not None and try_write(os.path.join(path, "memory.limit_in_bytes"), limit)


def memory_limits_here() -> bool:
    """Would a limit be enforced on this host? Found out by trying."""
    name = "probe-%d" % os.getpid()
    own = make_cgroup(cgroup_path(name, ""))
    group, enforced = limit_memory(own, name, "", 1024)
    for path in {own, group} - {None}:
        remove_cgroup(str(path))
    return enforced


def try_write(path: str, text: str) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        os.write(fd, text.encode())
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def fork_into(path: str | None) -> Tuple[int, str | None]:
    """Fork a process that executes a program: (pid, the cgroup that it begins in). None: it has to join by itself."""
    if path is not None:
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return fork_into_cgroup(fd), path
            finally:
                os.close(fd)
    return os.fork(), None


def join_cgroup(path: str) -> bool:
    """Move this process into the cgroup."""
    return try_write(os.path.join(path, "cgroup.procs"), "0")


def cgroup_pids(path: str | None) -> Set[int]:
    """All processes in the cgroup and in those below it."""
    found: Set[int] = set()
    for directory, _, _ in os.walk(path) if path else ():
        try:
            with open(os.path.join(directory, "cgroup.procs")) as file:
                found.update(int(line) for line in file)
        except OSError:
            pass
    return found - {0}


def remove_cgroup(path: str, patience_s: float = 0.0) -> bool:
    """Remove a cgroup, and return whether it is gone.

    The kernel refuses with EBUSY while the last process of a cgroup still exits: so it is tried for `patience_s`.
    """
    until = time.monotonic() + patience_s
    while os.path.isdir(path):
        for directory, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        if time.monotonic() >= until:
            break
        if os.path.isdir(path):
            time.sleep(0.005)
    return not os.path.isdir(path)


def cgroups_of(facts: Mapping[str, Any]) -> List[str]:
    """Where a run's cgroups are, or would be if their maker was killed before it could write so."""
    found = {facts["cgroup"], facts["memory_cgroup"]}
    if facts["mark"]:
        found |= {cgroup_path(facts["run"], facts["mark"], controller) for controller in ("", "memory")}
    return sorted(path for path in found if path and os.path.basename(path).startswith("trainyard."))


def old_probes(parent: str | None) -> List[str]:
    """Cgroups of probes that were killed while they tried a limit. A probe that is still at it is younger."""
    found = []
    for name in os.listdir(parent) if parent else ():
        if name.startswith("trainyard.probe-"):
            with contextlib.suppress(OSError):
                if os.lstat(os.path.join(str(parent), name)).st_mtime < time.time() - PROBE_KEPT_S:
                    found.append(os.path.join(str(parent), name))
    return found


def counter(path: str, word: str) -> int | None:
    """The number behind a word in a file of counters."""
    try:
        with open(path) as file:
            rows = [line.split() for line in file]
        return next((int(row[1]) for row in rows if len(row) == 2 and row[0] == word), None)
    except (OSError, ValueError):
        return None


def host_oom_kills() -> int | None:
    """As `counter` would find it, but faster, for each start calls it: no other line is parsed."""
    try:
        after = read_kernel_file("/proc/vmstat").partition(b"\noom_kill ")[2]
        return int(after.partition(b"\n")[0])
    except (OSError, ValueError):
        return None


def own_oom_kills(group: str | None) -> int | None:
    """How many processes of this cgroup the kernel has killed for memory; None where it does not count."""
    if group is None:
        return None
    found = counter(os.path.join(group, "memory.events"), "oom_kill")
    return found if found is not None else counter(os.path.join(group, "memory.oom_control"), "oom_kill")


class OomCounts(NamedTuple):
    """The kernel's count of all OOM kills of the host: when the run began, at the last note, and after its end."""

    before: int | None
    recent: int | None
    after: int | None


def judge_oom(own: int | None, host: OomCounts, killed: bool, failed: bool) -> Tuple[bool | None, str, str]:
    """(out of memory?, how sure: certain, likely or unknown, a text). None: this host cannot tell."""
    if not failed:
        return False, "certain", ""
    if own is not None:
        text = "the kernel killed it for memory (its own cgroup counted %d)" % own if own else ""
        return own > 0, "certain", text
    if not killed:
        return False, "likely", ""
    if host.before is None or host.recent is None or host.after is None:
        return None, "unknown", "this host does not report whether SIGKILL came from lack of memory"
    if host.after > host.recent:
        count = host.after - host.recent
        return (
            True,
            "likely",
            "killed when this host ran out of memory (the kernel counted %d just then)" % count,
        )
    if host.after > host.before:
        return None, "unknown", "this host ran out of memory while it ran, but not when it was killed"
    return False, "certain", ""


# How often a run notes the kernel's count of OOM kills: an older count says nothing about its end.
OOM_LOOK_S = 20.0


class OomWatch:
    """The host's count of OOM kills over the life of one run."""

    def __init__(self) -> None:
        self._before: int | None = None
        self._recent: int | None = None
        self._look_at = 0.0

    def begin(self) -> None:
        self._before = self._recent = host_oom_kills()
        self._look_at = time.monotonic() + OOM_LOOK_S

    def counts(self) -> Tuple[int | None, int | None]:
        return self._before, self._recent

    def go_on(self, before: int | None, recent: int | None) -> None:
        """These are the counts of another keeper, which has watched from them on."""
        self._before, self._recent = before, recent

    def look(self, now: float) -> None:
        if now >= self._look_at:
            self._look_at, self._recent = now + OOM_LOOK_S, host_oom_kills()

    def judge(
        self, group: str | None, killed: bool, stopping: bool, failed: bool
    ) -> Tuple[bool | None, str, str]:
        """Whether this end came from a lack of memory. `killed`: by SIGKILL; `stopping`: which we may have sent."""
        counts = OomCounts(self._before, self._recent, host_oom_kills() if killed else None)
        return judge_oom(own_oom_kills(group), counts, killed and not stopping, failed)


def containment_level() -> str:
    return "cgroup" if delegated_cgroup() else "subreaper"
