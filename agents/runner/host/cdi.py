"""The GPUs that the CDI specs of this host name: by these names an engine gives them to containers, with the libraries
of their driver.

nvidia-ctk writes a spec as YAML or as JSON. Of YAML only what nvidia-ctk writes is read: Python has no reader for it.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Set

# Where engines look for specs, and what their names end in.
PLACES = ("/etc/cdi", "/var/run/cdi")
_ENDINGS = (".json", ".yaml")
KIND = "nvidia.com/gpu"
_MAX_BYTES = 1 << 20
_YAML_KIND = re.compile(r"^kind:\s*[\"']?%s[\"']?[ \t]*(?:[ \t]#[^\n]*)?\r?$" % re.escape(KIND), re.M)
# The list of devices, with comments, up to the next key of the document. In a device only its name is called `name`.
_YAML_DEVICES = re.compile(r"^devices:[^\n]*\n((?:[ \t#-][^\n]*\n|\r?\n)*)", re.M)
_YAML_NAME = re.compile(r"^[ \t-]*name:\s*[\"']?([^\s\"']+)", re.M)


def cdi_names() -> Set[str]:
    """The names of all GPUs in all specs: UUIDs, indexes and `all`, as their maker was asked for."""
    found: Set[str] = set()
    for place in PLACES:
        try:
            names = [name for name in sorted(os.listdir(place)) if name.endswith(_ENDINGS)]
        except OSError:
            continue
        for name in names:
            try:
                with open(os.path.join(place, name), encoding="utf-8", errors="replace") as file:
                    found |= names_in(file.read(_MAX_BYTES))
            except OSError:
                continue
    return found


def names_in(text: str) -> Set[str]:
    """The GPUs that one spec names: no name if it is for other devices, or is damaged."""
    if text.lstrip().startswith("{"):
        return _names_in_json(text)
    if not _YAML_KIND.search(text):
        return set()
    return {name for part in _YAML_DEVICES.findall(text + "\n") for name in _YAML_NAME.findall(part)}


def _names_in_json(text: str) -> Set[str]:
    try:
        spec: Any = json.loads(text)
        of_gpus = spec["kind"] == KIND
        return {str(device["name"]) for device in spec["devices"]} if of_gpus else set()
    except (ValueError, LookupError, TypeError, RecursionError):
        return set()
