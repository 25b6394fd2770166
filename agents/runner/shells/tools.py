"""The tools that a console has put on this host for shells (agents/ssh/tools.py), by their digests."""

from __future__ import annotations

import os
import re
from typing import Any, Dict

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class ToolsMissing(Exception):
    """The console has tools for this kind of processor, and they are not here yet."""

    def __init__(self, machine: str) -> None:
        super().__init__("the tools for %s are not on this host" % machine)
        self.machine = machine


def place_of(directory: str, offered: Any) -> str:
    """Where the tools are for this processor; empty if the console has none for it.

    `offered`: their digests by the kind of processor. Raises ToolsMissing.
    """
    machine = os.uname().machine
    digest = offered.get(machine) if isinstance(offered, dict) else None
    if not isinstance(digest, str) or not _DIGEST.match(digest):
        return ""
    place = os.path.join(directory, digest)
    if not os.path.isdir(place):
        raise ToolsMissing(machine)
    return place


def add_tools(env: Dict[str, str], directory: str, offered: Any) -> None:
    """Give a shell the tools: at the end of `PATH`, so that programs of the job's own are found first, and to pip.

    Raises ToolsMissing.
    """
    place = place_of(directory, offered)
    if not place:
        return
    env["PATH"] = "%s:%s" % (env["PATH"], os.path.join(place, "bin"))
    links = env.get("PIP_FIND_LINKS")
    own = os.path.join(place, "wheels")
    env["PIP_FIND_LINKS"] = "%s %s" % (links, own) if links else own
