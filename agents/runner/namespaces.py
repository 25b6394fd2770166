"""PID namespaces: where the host allows one and an admin has switched it on, a run has one of its own.

The kernel ends everybody in a namespace with its first process, and lets nobody out. Without root it can be had inside
a user namespace only, in which this login is itself and everybody else is nobody.
"""

from __future__ import annotations

import ctypes
import os

from agents.runner.linux import libc

_NEWNS, _NEWUSER, _NEWPID = 0x00020000, 0x10000000, 0x20000000
_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_SLAVE_REC = 1 << 19 | 16384


def unshare_pid_namespace() -> None:
    """The children of this process will live in a PID namespace of their own; the first one is its init."""
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(_NEWNS | _NEWPID) == 0:
        return  # root needs nothing more
    if libc.unshare(_NEWUSER | _NEWNS | _NEWPID) != 0:
        raise OSError(ctypes.get_errno(), "%s (unshare)" % os.strerror(ctypes.get_errno()))
    for name, words in (("setgroups", "deny"), ("uid_map", "%d %d 1"), ("gid_map", "%d %d 1")):
        own = {"uid_map": uid, "gid_map": gid}.get(name)
        with open("/proc/self/" + name, "w") as file:
            file.write(words if own is None else words % (own, own))


def mount_proc() -> None:
    """In the namespace's first process: a /proc of those who live in it. What the host mounts later is seen, too."""
    for arguments in (
        (b"none", b"/", None, ctypes.c_ulong(_SLAVE_REC), None),
        (b"proc", b"/proc", b"proc", ctypes.c_ulong(_NOSUID_NODEV_NOEXEC), None),
    ):
        if libc.mount(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "%s (mount of /proc)" % os.strerror(ctypes.get_errno()))


def error_bytes(error: BaseException) -> bytes:
    """Few enough bytes for a pipe that somebody reads later."""
    words = error.strerror if isinstance(error, OSError) else repr(error)
    return (words or repr(error)).encode("utf-8", "replace")[:200]


def why_no_namespace() -> str:
    """Why this login cannot have one here; empty where it can. Tried, for no file tells it for certain."""
    read, write = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            unshare_pid_namespace()
            first = os.fork()
            if first == 0:
                mount_proc()
                os.write(write, b"+")
            else:
                os.waitpid(first, 0)
        except BaseException as error:
            os.write(write, error_bytes(error))
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        words = file.read().decode("utf-8", "replace")
    os.waitpid(middle, 0)
    return "" if words == "+" else words or "it was killed"
