"""PID namespaces: a run has one of its own where the host allows it and an admin has switched it on.

The kernel ends all processes of a namespace with its first one, and lets none out. Without root a PID namespace can be
had inside a user namespace only, in which this login is itself and every other user is nobody.
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
    for name, text in (("setgroups", "deny"), ("uid_map", "%d %d 1"), ("gid_map", "%d %d 1")):
        own = {"uid_map": uid, "gid_map": gid}.get(name)
        with open("/proc/self/" + name, "w") as file:
            file.write(text if own is None else text % (own, own))


def mount_proc() -> None:
    """In the namespace's first process: mount a /proc of this namespace. Later mounts of the host are still seen."""
    for arguments in (
        (b"none", b"/", None, ctypes.c_ulong(_SLAVE_REC), None),
        (b"proc", b"/proc", b"proc", ctypes.c_ulong(_NOSUID_NODEV_NOEXEC), None),
    ):
        if libc.mount(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "%s (mount of /proc)" % os.strerror(ctypes.get_errno()))


def error_bytes(error: BaseException) -> bytes:
    """The text of an error, short enough for a pipe that is read later."""
    text = error.strerror if isinstance(error, OSError) else repr(error)
    return (text or repr(error)).encode("utf-8", "replace")[:200]


def why_no_namespace() -> str:
    """Why this login cannot have a PID namespace here; empty where it can. Tried, for no file says it for certain."""
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
        text = file.read().decode("utf-8", "replace")
    os.waitpid(middle, 0)
    return "" if text == "+" else text or "it was killed"
