"""Python packages that a job brings: shipped files, under the names that pip reads."""

from __future__ import annotations

import os
import re
from typing import Dict, List

from agents.runner.cache.store import BLOBS, Cache
from agents.runner.preparations.long_programs import Unprepared

_PACKAGE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,200}\.(?:whl|zip|tar\.gz|tgz|tar\.bz2|tar\.xz)\Z", re.ASCII
)


def lay_out(cache: Cache, packages: List[Dict[str, str]], into: str) -> List[str]:
    """Link the files ([{sha256, name}]) into this directory, each into one of its own. Returns their paths below it, in
    order. Raises Unprepared."""
    found = []
    for number, package in enumerate(packages):
        name = str(package.get("name"))
        if not _PACKAGE.match(name):
            text = "%.200r is not the name of a wheel or of a source archive" % name
            raise Unprepared("user", "bad_package", text)
        os.makedirs(os.path.join(into, str(number)), 0o700)
        place = "%d/%s" % (number, name)
        with cache.locked(BLOBS, package["sha256"], shared=True):
            os.link(cache.path(BLOBS, package["sha256"]), os.path.join(into, place))
        found.append(place)
    return found
