"""Put the modules of this package on the host as files: the Python of a job imports them, and not the runner.

They get a name of their own, for a program may have a package `agents` itself. The directory is named by what is in
it, so a run keeps the modules that it began with when the runner is replaced by a newer one.
"""

from __future__ import annotations

import hashlib
import os
from typing import Dict

from agents.runner.files import write_file

PACKAGE, OWN = "agents.runner.reduction", "trainyard_reduction"
# This one is found by Python itself.
HOOK = "sitecustomize"
MODULES = (
    *(
        "__init__",
        "ending",
        "exchange",
        "group",
        "hook",
        "inside",
        "link",
        "peer",
        "reducer",
        "report",
        "session",
        "staging",
    ),
    *("sums", "way", "wire"),
)
VARIABLE = "TRAINYARD_REDUCTION"
_STAMP = "whole"


def sources() -> Dict[str, bytes]:
    """Path below the directory → bytes. The runner is one file: its own loader reads them, by its own paths."""
    place = os.path.dirname(__file__)
    found = {}
    for name in (HOOK, *MODULES):
        data: bytes = __loader__.get_data(os.path.join(place, name + ".py"))  # type: ignore[name-defined]
        data = data.replace(PACKAGE.encode(), OWN.encode())
        found["%s.py" % name if name == HOOK else "%s/%s.py" % (OWN, name)] = data
    return found


# Read once, at the start: the runner's own file may be replaced later.
SOURCES = sources()
DIGEST = hashlib.sha256(
    b"".join(b"%s\0%s\0" % (name.encode(), SOURCES[name]) for name in sorted(SOURCES))
).hexdigest()


def directory_of(base: str) -> str:
    return os.path.join(base, "reduction", DIGEST[:16])


def put_files(base: str) -> str:
    """The directory, with all files in it. Raises OSError."""
    directory = directory_of(base)
    stamp = os.path.join(directory, _STAMP)
    if not os.path.exists(stamp):
        os.makedirs(os.path.join(directory, OWN), 0o755, exist_ok=True)
        for made in (directory, os.path.join(directory, OWN)):
            os.chmod(made, 0o755)  # whatever the umask
        for name, data in SOURCES.items():
            write_file(os.path.join(directory, name), data)
            os.chmod(os.path.join(directory, name), 0o644)  # a container may have another user
        write_file(stamp, b"")
    return directory
