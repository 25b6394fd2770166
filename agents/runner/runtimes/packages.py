"""Python packages of a job whose replicas run in an image: installed by the image's own Python, for each run.

The directory `packages` of the run is in its container under the same path. In it are copies of the shipped files, and
a program (install_packages.py) that is executed first: it installs them into an environment there, and becomes the
program of the job. What pip prints is the head of the run's log. When the run is closed, all of it is deleted.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, List, Mapping

from agents.runner.cache.store import TREES, Cache
from agents.runner.cache.work_tree import copy_tree
from agents.runner.files import PACKAGES, read_plain, write_file
from agents.runner.logs.mask_patterns import parts_of
from agents.runner.runs.orders import Order, Refused
from agents.runner.runtimes.install_packages import ASKED, ENVIRONMENT, FILES, TROUBLE

PROGRAM = "install.py"
MAX_TROUBLE = 2000
NO_PYTHON = (
    "the image has no python3 (3.7 or newer), which is to install the packages of the job and to run them"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# Read once, at the start: the runner's own file may be replaced later. It is one file, whose loader reads its parts.
SOURCE: bytes = __loader__.get_data(  # type: ignore[name-defined]
    os.path.join(os.path.dirname(__file__), "install_packages.py")
)


def directory_of(directory: str) -> str:
    return os.path.join(directory, PACKAGES)


def with_packages(order: Order, directory: str) -> Order:
    """The order by which the packages are installed before the program is executed; without packages, the same."""
    if order.packages is None or order.runtime is None:
        return order
    place = directory_of(directory)
    # Without the variables that are for the program: what they let Python find need not go well with pip.
    first = ["python3", "-E", os.path.join(place, PROGRAM)]
    runtime = {
        **order.runtime,
        "entrypoint": [*first, *(order.runtime.get("entrypoint") or [])],
        "mounts": [*(order.runtime.get("mounts") or []), [place, place, "rw"]],
    }
    # By it, shells find the environment.
    env = {"VIRTUAL_ENV": os.path.join(place, ENVIRONMENT), **order.env}
    return order._replace(runtime=runtime, env=env)


def put_packages(cache: Cache, order: Order, directory: str) -> None:
    """Put all that the container needs into the run's directory. Raises Refused or OSError."""
    if order.packages is None or order.runtime is None:
        return
    key, index = order.packages
    place = directory_of(directory)
    os.mkdir(place, 0o700)
    with cache.locked(TREES, key, shared=True):
        if not cache.has(TREES, key):
            raise Refused("unprepared", "the Python packages of this run are not on this host any more")
        # Copies: the program may write there, and others use the same bytes.
        copy_tree(cache.path(TREES, key), os.path.join(place, FILES))
    names = sorted(os.listdir(os.path.join(place, FILES)), key=int)
    packages = [
        "%s/%s" % (name, each) for name in names for each in os.listdir(os.path.join(place, FILES, name))
    ]
    # The programs of packages see the variables of the job too, and what they print last is told to people.
    values = [order.env[name] for name in order.secrets if order.env.get(name)]
    asked = {"packages": packages, "index": index, "secrets": [*_secrets(index), *values]}
    write_file(os.path.join(place, ASKED), json.dumps(asked).encode())
    write_file(os.path.join(place, PROGRAM), SOURCE)


def _secrets(index: str) -> List[str]:
    return sorted(filter(None, parts_of(index))) if "://" in index else []


def has_packages(directory: str) -> bool:
    return os.path.isdir(directory_of(directory))


def trouble_of(directory: str, facts: Mapping[str, Any]) -> str:
    """Why a run that has ended has not executed its program; empty if it has. The program can write there, so what is
    there is read with care."""
    if facts["why"] != "exit" or facts["exit_code"] == 0:
        return ""
    place = directory_of(directory)
    try:
        if os.path.lexists(os.path.join(place, ASKED)):
            return NO_PYTHON  # nobody has read it: an init of the engine was executed, and found no python3
        data = read_plain(os.path.join(place, TROUBLE), MAX_TROUBLE)
    except OSError:
        return ""
    return _CONTROL.sub("", data.decode("utf-8", "replace"))
