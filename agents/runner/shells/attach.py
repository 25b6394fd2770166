"""Attach: gives an SSH channel to the shell of a run that a process of its own holds (`holder.py`).

Each connection gives the holder the descriptors of its channel, so that nothing here relays keys; then it only waits,
because sshd closes a channel when the process on it ends. A person who reloads the page of a shell waits for the start
of this mode, so it imports little: not what makes a shell (`shell.py`).

A holder listens on an abstract socket, which needs no file: it works on a full disk and in a home on NFS, and no path
is too long. Other users of the host can see its name, but a holder and those who attach look at each other's user id.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
from typing import Callable, NoReturn

from agents.runner.files import read_json, read_line
from agents.runner.home import Home, is_run_id
from agents.runner.linux import boot_id
from agents.runner.shells.frames import json_line
from agents.runner.wire import SHELL_PREFACE, Message, WireError, decode_object

# Makes the shell that a request asks for, which listens on this address from then on.
Make = Callable[[bytes, Message, Home], None]


class Gone(Exception):
    """The shell that a connection wants to attach to is not there any more."""


def main() -> NoReturn:
    attach()


def attach(make: Make | None = None) -> NoReturn:
    """One line of JSON in, one line out, then frames, which the holder sends. Exits with status 1 when refused."""
    os.write(1, SHELL_PREFACE)
    try:
        line = read_line(0)
        control = connect(decode_object(line), make)
        fds = array.array("i", [0, 1])
        control.sendmsg([line], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    except (Gone, WireError, OSError, ValueError, KeyError, TypeError) as error:
        refuse({"error": "%s" % (error or repr(error)), "gone": isinstance(error, Gone)})
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    with contextlib.suppress(OSError):
        control.recv(1)
    os._exit(0)


def refuse(answer: Message) -> NoReturn:
    os.write(1, json_line(answer))
    os._exit(1)


def connect(request: Message, make: Make | None) -> socket.socket:
    """A connection to the holder of the shell. Raises Gone if there is none."""
    home, key = Home(request["deployment"]), request["shell"]
    if not is_run_id(key):
        raise ValueError("not a name of a shell: %.100r" % (key,))
    address = b"\0trainyard-shell-%d-%s-%s" % (os.getuid(), home.deployment.encode(), key.encode())
    if make is not None:
        make(address, request, home)
    control = socket.socket(socket.AF_UNIX)
    try:
        control.connect(address)
    except OSError:
        raise Gone(why_gone(record_of(home, key))) from None
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if uid != os.getuid():
        raise ValueError("another user of this host listens in place of the shell")
    return control


def record_of(home: Home, key: str) -> str:
    """The file that says which process holds the shell, while it does."""
    return os.path.join(home.shells, key + ".json")


def why_gone(record: str) -> str:
    """Why nobody listens for this shell any more."""
    found = read_json(record)
    if found is None:
        return "The shell has ended."
    if found.get("boot_id") != boot_id():
        return "The host was rebooted, and the shell ended with it."
    return "The process that held the shell on the host was killed."
