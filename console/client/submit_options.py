"""Which options of `submit` go with which way to say the job: what would have no effect is refused, with a cure."""

from __future__ import annotations

import argparse
from typing import Any

from .errors import NOT_UNDERSTOOD, ClientError

Document = dict[str, Any]
FILE, POOLS, COMMAND = "a file", "--worker-pool-spec", "-- COMMAND"
# The options that only some ways take: their names in `argparse`, and these ways.
ONLY_WITH = {
    "command": (POOLS,),
    "args": (POOLS,),
    "python_package_uris": (POOLS,),
    "machine_type": (COMMAND,),
    "accelerator": (COMMAND,),
    "replicas": (COMMAND,),
    "image": (COMMAND,),
    "folder": (COMMAND,),
    # With a file nothing is uploaded anyway.
    "no_upload": (COMMAND, FILE),
}
CURES = {
    FILE: "Write it into the file, or submit with {ways}.",
    POOLS: "Write it into --worker-pool-spec, such as machine-type=host,accelerator-type=...,replica-count=2.",
    COMMAND: "Write all words of the command behind --, or submit with {ways}.",
}


def check_options(args: argparse.Namespace, way: str) -> None:
    """Raise ClientError for an option that this way does not read."""
    for name, ways in ONLY_WITH.items():
        if getattr(args, name) and way not in ways:
            option = "--" + name.replace("_", "-")
            cure = CURES[way].format(ways=" or ".join(ways))
            raise ClientError(f"{option} has no effect with {way}.", cure, NOT_UNDERSTOOD)
    if args.folder and args.no_upload:
        raise ClientError(
            "--folder has no effect with --no-upload.", "Leave one of them out.", NOT_UNDERSTOOD
        )


def check_pools(args: argparse.Namespace, pools: list[Document]) -> None:
    """Raise ClientError for an option that none of these pools reads."""
    containers = any("containerSpec" in pool for pool in pools)
    packages = any("pythonPackageSpec" in pool for pool in pools)
    if args.command and not containers:
        raise ClientError(
            "--command has no effect: no pool is a container.",
            "A Python package is begun by python-module; leave --command out.",
            NOT_UNDERSTOOD,
        )
    if args.python_package_uris and not packages:
        raise ClientError(
            "--python-package-uris has no effect: no pool is a Python package.",
            "Give executor-image-uri and python-module in --worker-pool-spec.",
            NOT_UNDERSTOOD,
        )


def set_variables(pools: list[Document], variables: list[Document]) -> None:
    """Give each container and package of these pools the variables, in place of those with the same names."""
    named = {one["name"] for one in variables}
    tasks = [
        pool[key]
        for pool in pools
        for key in (spelled(pool, "containerSpec"), spelled(pool, "pythonPackageSpec"))
        if pool.get(key) is not None
    ]
    if not tasks:
        raise ClientError(
            "--env has no effect: no pool has a containerSpec or pythonPackageSpec.",
            "docs/using.md shows a job.",
            NOT_UNDERSTOOD,
        )
    for task in tasks:
        kept = [one for one in task.get("env") or () if one.get("name") not in named]
        task["env"] = [*kept, *variables]


def spelled(document: Document, name: str) -> str:
    """The name that the document has for this field: Vertex reads `jobSpec` and `job_spec`."""
    snake = "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)
    return snake if snake in document else name
