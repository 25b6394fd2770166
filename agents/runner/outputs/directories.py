"""Output directories: where the addresses of cloud storage that an order names lie on this host.

`gs://bucket/x` and `/gcs/bucket/x` are one address. Each bucket of the order is a directory: one that all hosts share,
or one of this host, whose files the console fetches (outputs.py). A process has no file system of its own, so there is
no /gcs for it. Instead, its command and the variables that the order lists are given with the directory in place of
the address. That is done here and to texts only: no shell reads them. A container has them mounted at /gcs.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Match, Tuple

from agents.runner.forks import run_with_timeout
from agents.runner.home import Home, is_run_id
from agents.runner.runs.orders import Refused

# Cloud Storage's names of buckets.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]\Z")
# An address may stand in the midst of a word: --out=gs://bucket/x, or a script. /data/gcs/x is another path.
_ADDRESS = re.compile(r"(?<![\w./-])(?:gs:/|/gcs)/([a-z0-9][a-z0-9._-]*[a-z0-9])(?![A-Za-z0-9_-])")
MAX_BUCKETS = 64
MAX_MADE = 64
SHARED_S = 20.0
# The runtimes whose programs have the file system of the host, and where containers have all buckets.
WITHOUT_CONTAINER = (None, "process", "python")
CONTAINER_TOP = "/gcs"


def is_bucket(name: object) -> bool:
    return isinstance(name, str) and _BUCKET.match(name) is not None and ".." not in name


def place(outputs: Dict[str, Any], home: Home) -> Dict[str, str]:
    """By bucket, its directory on this host. Raises Refused."""
    key, buckets = outputs.get("key"), outputs.get("buckets")
    if not is_run_id(key) or not isinstance(buckets, dict) or len(buckets) > MAX_BUCKETS:
        raise Refused("bad_order", "outputs: a key and at most %d buckets are expected" % MAX_BUCKETS)
    found = {}
    for bucket, shared in buckets.items():
        if not is_bucket(bucket) or not isinstance(shared, str) or "\0" in shared:
            raise Refused("bad_order", "outputs: %.80r is not a bucket with a directory" % (bucket,))
        if shared and not os.path.isabs(shared):
            raise Refused("bad_order", "outputs: %.200r is not an absolute path" % (shared,))
        found[bucket] = shared or os.path.join(home.outputs, str(key), bucket)
    return found


def with_directories(document: Dict[str, Any], home: Home) -> Dict[str, Any]:
    """The order with directories in place of addresses. The directories are made. Raises Refused or OSError."""
    outputs = document.get("outputs")
    if not isinstance(outputs, dict):
        return document
    places = place(outputs, home)
    _make(outputs, places)
    changed = dict(document)
    above = os.path.join(home.outputs, str(outputs["key"]))
    runtime = document.get("runtime")
    if isinstance(runtime, dict) and runtime.get("kind") not in WITHOUT_CONTAINER:
        above, inside = CONTAINER_TOP, {bucket: "%s/%s" % (CONTAINER_TOP, bucket) for bucket in places}
        changed["runtime"] = _mounted(runtime, places, inside)
        places = inside
    command, env = document.get("command"), document.get("env")
    if isinstance(command, list):
        changed["command"] = [mapped(word, places) for word in command]
    if isinstance(env, dict):
        listed = outputs.get("variables")
        names = set(listed) if isinstance(listed, list) else set()
        changed["env"] = {name: mapped(env[name], places) if name in names else env[name] for name in env}
        changed["env"].setdefault("TRAINYARD_OUTPUTS", above)
    return changed


def _mounted(runtime: Dict[str, Any], places: Dict[str, str], inside: Dict[str, str]) -> Dict[str, Any]:
    """A container finds the directories where Vertex has them."""
    mounts = runtime.get("mounts")
    own = [[places[bucket], inside[bucket], "rw"] for bucket in sorted(places)]
    changed = dict(runtime, mounts=[*(mounts if isinstance(mounts, list) else ()), *own])
    for name in ("entrypoint", "args"):
        if isinstance(runtime.get(name), list):
            changed[name] = [mapped(word, inside) for word in runtime[name]]
    return changed


def mapped(text: Any, places: Dict[str, str]) -> Any:
    """The text with directories in place of the addresses of these buckets. Other addresses stay."""

    def directory(found: Match[str]) -> str:
        return places.get(found.group(1), found.group(0))

    return _ADDRESS.sub(directory, text) if isinstance(text, str) else text


def _make(outputs: Dict[str, Any], places: Dict[str, str]) -> None:
    """Make the directories of the buckets, and those below them that the order asks for."""
    shared = {bucket for bucket, where in outputs["buckets"].items() if where}
    own = [places[bucket] for bucket in places if bucket not in shared]
    others: List[str] = []
    for bucket, path in _asked(outputs, places):
        (others if bucket in shared else own).append(os.path.join(places[bucket], path))
    for directory in own:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    if not shared:
        return

    def act() -> None:
        for bucket in shared:
            if not os.path.isdir(places[bucket]):
                raise OSError("no such directory")
        for directory in others:
            os.makedirs(directory, exist_ok=True)

    # Storage of a network may not answer: a child with a deadline touches it.
    if not run_with_timeout(act, SHARED_S):
        named = ", ".join(sorted(places[bucket] for bucket in shared))
        raise Refused("storage", "%s is not there, does not answer, or cannot be written" % named)


def _asked(outputs: Dict[str, Any], places: Dict[str, str]) -> List[Tuple[str, str]]:
    """The directories to make, each as (bucket, path below it)."""
    asked = outputs.get("make")
    found = []
    for each in asked[:MAX_MADE] if isinstance(asked, list) else ():
        bucket, _, path = each.partition("/") if isinstance(each, str) else ("", "", "")
        parts = [part for part in path.split("/") if part]
        if bucket in places and parts and ".." not in parts and "\0" not in path:
            found.append((bucket, "/".join(parts)))
    return found
