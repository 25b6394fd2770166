"""Shared memory that a run leaves behind: files in /dev/shm and segments of System V. It outlives its processes.

Several runs and people may share a login, so only what the run's own processes made may be removed. Nobody records who
made a file. So the keeper looks at once when a file appears (inotify): whoever holds it then, made it. If nobody holds
it any more, it belongs to this run only if the login had no other processes that could have made it. The kernel does
record who made a segment. What is made is noted in the run's directory, for the process that closes the run may be
another one.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import stat
import time
from typing import Callable, Dict, List, NamedTuple, Set

from agents.runner.files import SHARED_MEMORY, read_json, whole, write_file
from agents.runner.linux import IN_CREATE, IN_MOVED_TO, Inotify, libc, read_kernel_file
from agents.runner.processes import all_processes, descendants

PLACE = "/dev/shm"
SEGMENTS = "/proc/sysvipc/shm"
LOOK_EVERY_S = 5.0  # for segments, which no event announces
# A look reads all of /proc: programs that make files all the time must not keep a core busy with looks.
REST_AFTER_LOOK = 20.0
MAX_NOTED = 4096
MAX_SHOWN = 3
_IPC_RMID = 0
# The login's processes that make nothing there: what sshd and systemd start for each connection.
_OF_THE_LOGIN = frozenset({"sshd", "sshd-session", "systemd", "(sd-pam)"})


class Segment(NamedTuple):
    shmid: int
    maker: int
    made_at: int
    size: int
    attached: int


class SharedMemory:
    """What one run made. `living` names its processes that live.

    The inotify instance is closed when the run is over and nobody waits: to close it takes ten milliseconds, in which
    the kernel waits for all who read its marks.
    """

    def __init__(self, directory: str, living: Callable[[], Set[int]]) -> None:
        self.directory, self.living = directory, living
        self.inotify = Inotify()
        self.inotify.watch(PLACE, IN_CREATE | IN_MOVED_TO)
        self.fd = self.inotify.fd
        self.files, self.segments = read_note(directory)
        self.known = listed()
        self.known_segments: Set[int] = {each.shmid for each in segments()}
        # When the next look is wanted, and before which moment there is none. Now nothing can be new.
        self.look_at, self.next_look = time.monotonic() + LOOK_EVERY_S, 0.0

    def look(self, now: float, ended: int = 0) -> None:
        """Note what is new since the last look. `ended`: a process of the run that is no longer among the living."""
        began = time.monotonic()
        for _ in self.inotify.read() if self.fd >= 0 else ():
            pass
        there = listed()
        new = own_files(there - self.known)
        found = [each for each in segments() if each.shmid not in self.known_segments]
        self.known = there
        self.known_segments |= {each.shmid for each in found}
        if new or found:
            own = self.living() | {ended}
            mine = made_by(own, set(new))
            self.files.update({name: new[name] for name in sorted(mine)[: MAX_NOTED - len(self.files)]})
            self.segments |= {(each.shmid, each.made_at) for each in found if each.maker in own}
            if mine or any(each.maker in own for each in found):
                self.note()
        self.next_look = now + (time.monotonic() - began) * REST_AFTER_LOOK
        self.look_at = now + LOOK_EVERY_S

    def note(self) -> None:
        document = {"files": self.files, "segments": sorted(self.segments)[:MAX_NOTED]}
        with contextlib.suppress(OSError):
            write_file(os.path.join(self.directory, SHARED_MEMORY), json.dumps(document).encode())


def read_note(directory: str) -> tuple[Dict[str, int], Set[tuple[int, int]]]:
    found = read_json(os.path.join(directory, SHARED_MEMORY)) or {}
    files, pairs = found.get("files"), found.get("segments")
    files = files if isinstance(files, dict) else {}
    pairs = pairs if isinstance(pairs, list) else []
    return (
        {name: whole(inode) for name, inode in list(files.items())[:MAX_NOTED] if "/" not in name},
        {(whole(p[0]), whole(p[1])) for p in pairs[:MAX_NOTED] if isinstance(p, list) and len(p) == 2},
    )


def sweep_shared_memory(directory: str) -> str:
    """Remove what the run made and no process uses any more; returns a sentence about it, for people."""
    files, pairs = read_note(directory)
    used = holders_of(set(files), set(all_processes())) if files else {}
    gone: List[str] = []
    freed = 0
    for name, inode in files.items():
        path = os.path.join(PLACE, name)
        # ValueError: a name that no file can have. The run's own programs may write the note.
        with contextlib.suppress(OSError, ValueError):
            found = os.lstat(path)
            mine = found.st_uid == os.getuid() and found.st_ino == inode and stat.S_ISREG(found.st_mode)
            if mine and name not in used:
                os.unlink(path)
                freed += found.st_blocks * 512
                gone.append(name)
    removed = 0
    for each in segments() if pairs else ():
        if (each.shmid, each.made_at) not in pairs or each.attached:
            continue
        if libc.shmctl(ctypes.c_int(each.shmid), ctypes.c_int(_IPC_RMID), None) == 0:
            removed += 1
            freed += each.size
    return _sentence(gone, removed, freed)


def _sentence(gone: List[str], removed: int, freed: int) -> str:
    what = []
    if gone:
        names = [name.encode("utf-8", "replace").decode() for name in sorted(gone)[:MAX_SHOWN]]
        shown = ", ".join(names) + (", ..." if len(gone) > MAX_SHOWN else "")
        what.append("%d file%s in %s (%s)" % (len(gone), "" if len(gone) == 1 else "s", PLACE, shown))
    if removed:
        what.append("%d segment%s of shared memory" % (removed, "" if removed == 1 else "s"))
    if not what:
        return ""
    return "what it left was removed: %s; %.1f MB" % (" and ".join(what), freed / 1e6)


def listed() -> Set[tuple[str, int]]:
    """The names in /dev/shm with their inodes, whosever they are. Training programs keep thousands of files there, and
    each run looks: so this asks for no file by itself."""
    with contextlib.suppress(OSError), os.scandir(PLACE) as there:
        return {(entry.name, entry.inode()) for entry in there}
    return set()


def own_files(names: Set[tuple[str, int]]) -> Dict[str, int]:
    """Those of them that are plain files of this login, with their inodes."""
    found, uid = {}, os.getuid()
    for name, _ in names:
        with contextlib.suppress(OSError):
            status = os.lstat(os.path.join(PLACE, name))
            if status.st_uid == uid and stat.S_ISREG(status.st_mode):
                found[name] = status.st_ino
    return found


def segments() -> List[Segment]:
    """The System V segments that this login made."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        header, *lines = read_kernel_file(SEGMENTS).decode("ascii", "replace").splitlines()
        columns = header.split()
        places = [columns.index(name) for name in ("shmid", "cpid", "ctime", "size", "nattch")]
        maker, uid = columns.index("cuid"), str(os.getuid())
        for line in lines:
            row = line.split()
            if row[maker] == uid:
                found.append(Segment(*(int(row[place]) for place in places)))
    return found


def made_by(own: Set[int], new: Set[str]) -> Set[str]:
    """Which of these new files the processes `own` made: those that they hold; and all, if the login has no other
    processes that could have made one. To look at what all others hold would take too long for a look."""
    mine = set(holders_of(new, own))
    if new - mine and not _others(own):
        return new
    return mine


def _others(own: Set[int]) -> bool:
    """Whether the login has processes that are neither this run's nor the runner's nor the connection's."""
    everyone = all_processes()
    ours = own | descendants(own, everyone)
    return any(pid not in ours and _of_this_login(pid) and not _harmless(pid) for pid in everyone)


def _of_this_login(pid: int) -> bool:
    try:
        return os.stat("/proc/%d" % pid).st_uid == os.getuid() and bool(_read("/proc/%d/cmdline" % pid))
    except OSError:
        return False


def _harmless(pid: int) -> bool:
    command = _read("/proc/%d/cmdline" % pid).split(b"\0")
    if command[0].startswith(b"trainyard-") or b"/.trainyard/bin/" in b"/" + b"/".join(command[1:2]):
        return True
    return _read("/proc/%d/comm" % pid).decode("utf-8", "replace").strip() in _OF_THE_LOGIN


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def holders_of(names: Set[str], pids: Set[int]) -> Dict[str, Set[int]]:
    """By file, the processes that have it open or mapped, as far as they may be looked at."""
    found: Dict[str, Set[int]] = {}
    start = PLACE + "/"
    for pid in pids:
        held: Set[str] = set()
        with contextlib.suppress(OSError):
            for fd in os.listdir("/proc/%d/fd" % pid):
                with contextlib.suppress(OSError):
                    path = os.readlink("/proc/%d/fd/%s" % (pid, fd))
                    held |= {path[len(start) :]} if path.startswith(start) else set()
        for line in _read("/proc/%d/maps" % pid).split(b"\n"):
            at = line.find(b" " + start.encode())
            if at >= 0:
                held.add(os.fsdecode(line[at + 1 + len(start) :]))
        for name in held & names:
            found.setdefault(name, set()).add(pid)
    return found
