"""Which options of `submit` go with which way to say the job: what would have no effect is refused, with a cure. And
those that say what pools do not: outputs, secrets, code by git, the order, the engine."""

from __future__ import annotations

import argparse
import re
from typing import Any
from urllib.parse import urlsplit

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
    "git": (COMMAND,),
    "git_secret": (COMMAND,),
}
CURES = {
    FILE: "Write it into the file, or submit with {ways}.",
    POOLS: "Write it into --worker-pool-spec, such as machine-type=host,accelerator-type=...,replica-count=2.",
    COMMAND: "Write all words of the command behind --, or submit with {ways}.",
}

PRIORITY_LABEL = "trainyard-priority"
PRIORITIES = ("high", "normal", "low")
ENGINES = ("podman", "docker", "apptainer")
# The last @ stands before the revision: in git@example.com:lab/train.git it stands before the host.
_GIT = re.compile(r"((?:https|ssh)://[^/\s]+/\S+|[^@/\s]+@[^@:/\s]+:\S+)@([^@:\s]+)")


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
    if args.git and (args.folder or args.no_upload):
        option = "--folder" if args.folder else "--no-upload"
        raise ClientError(f"{option} has no effect with --git.", "Leave one of them out.", NOT_UNDERSTOOD)
    if args.git_secret and not args.git:
        raise ClientError("--git-secret has no effect without --git.", "Give --git too.", NOT_UNDERSTOOD)


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


def set_variables(pools: list[Document], variables: list[Document], option: str = "--env") -> None:
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
            f"{option} has no effect: no pool has a containerSpec or pythonPackageSpec.",
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    job = parser.add_argument_group("the job")
    job.add_argument("--output", default="", metavar="gs://BUCKET/NAME", help="where its outputs go")
    job.add_argument(
        "--secret", action="append", default=[], metavar="NAME[=STORED]", help="a stored secret; repeat it"
    )
    job.add_argument("--strategy", default="", help="STANDARD, SPOT or FLEX_START")
    job.add_argument("--priority", default="", choices=PRIORITIES, help="its place in the queue")
    job.add_argument("--runtime", choices=ENGINES, help="the engine of its images")
    job.add_argument("--shm-mb", type=int, metavar="MB", help="/dev/shm in its containers")
    git = parser.add_argument_group("-- COMMAND, with code by git")
    git.add_argument("--git", default="", metavar="URL@REVISION", help="in place of the folder")
    git.add_argument("--git-secret", default="", metavar="STORED", help="the stored secret that opens it")


def apply(args: argparse.Namespace, job: Document) -> None:
    """Write them into the job. They win over a file."""
    spec = job[spelled(job, "jobSpec")]
    pools = spec.get(spelled(spec, "workerPoolSpecs")) or []
    if args.output:
        spec[spelled(spec, "baseOutputDirectory")] = {"outputUriPrefix": args.output}
    if args.strategy:
        strategy = args.strategy.upper().replace("-", "_")
        spec["scheduling"] = {**(spec.get("scheduling") or {}), "strategy": strategy}
    if args.priority:
        job["labels"] = {**(job.get("labels") or {}), PRIORITY_LABEL: args.priority}
    if args.secret:
        set_variables(pools, [_secret(text) for text in args.secret], "--secret")
    given = {"runtime": args.runtime, "shmMb": args.shm_mb}
    engine = {name: value for name, value in given.items() if value is not None}
    if engine:
        _set_engine(pools, engine, "--runtime" if args.runtime else "--shm-mb")
    if args.git:
        for pool in pools:
            pool["trainyard"] = {**pool.get("trainyard", {}), "code": {"git": _git(args)}}


def _secret(text: str) -> Document:
    name, equals, stored = text.partition("=")
    if not name or (equals and not stored):
        raise ClientError(f"--secret {text!r}: NAME or NAME=STORED is expected.", "", NOT_UNDERSTOOD)
    return {"name": name, "valueFrom": {"secret": stored or name}}


def _set_engine(pools: list[Document], engine: Document, option: str) -> None:
    """Of each pool that runs an image. Reducers are run by what runs the primary."""
    with_image = [pool for pool in pools if _image_of(pool) not in ("", "host")]
    if not with_image:
        raise ClientError(
            f"{option} has no effect: no pool runs an image.",
            "Give --image, or container-image-uri in --worker-pool-spec.",
            NOT_UNDERSTOOD,
        )
    for pool in with_image:
        if "reductionserver" not in _image_of(pool):
            given = {name: value for name, value in (pool.get("trainyard") or {}).items() if name != "shm_mb"}
            pool["trainyard"] = {**given, **engine}


def _image_of(pool: Document) -> str:
    for task, image in (("containerSpec", "imageUri"), ("pythonPackageSpec", "executorImageUri")):
        found = pool.get(spelled(pool, task)) or {}
        if found:
            return str(found.get(spelled(found, image)) or "")
    return ""


def _git(args: argparse.Namespace) -> Document:
    found = _GIT.fullmatch(args.git)
    if not found:
        raise ClientError(
            f"--git {args.git!r}: URL@REVISION is expected.",
            "Such as https://example.com/lab/train.git@main, or git@example.com:lab/train.git@v1.2",
            NOT_UNDERSTOOD,
        )
    if _has_secret(found[1]):
        raise ClientError(
            "--git: the URL has a password, which would stand in the job for all who see it.",
            "Store it as a secret of the project, and give its name by --git-secret.",
            NOT_UNDERSTOOD,
        )
    secret = {"credentialSecret": args.git_secret} if args.git_secret else {}
    return {"url": found[1], "revision": found[2], **secret}


def _has_secret(url: str) -> bool:
    """A login of https is a token too, whatever its name; one of ssh has a key."""
    if "://" not in url:
        return False
    parts = urlsplit(url)
    return "@" in parts.netloc and (parts.scheme == "https" or ":" in parts.netloc.rpartition("@")[0])
