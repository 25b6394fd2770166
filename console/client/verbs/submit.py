"""`submit`: a file with a job, pools as gcloud has them, or `-- COMMAND` with the folder that it needs."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .. import submit_options, worker_pool_spec
from ..errors import NOT_UNDERSTOOD, REFUSED, ClientError, Offline
from ..packing import Tree, packed, read_tree
from ..progress import Progress
from ..session import Session
from ..submit_options import COMMAND, FILE, POOLS, check_options, check_pools, set_variables, spelled
from ..tables import has_colours, painted, print_json
from ..text import harmless, size
from ..uploads import upload_artifact
from . import logs, wait

Document = dict[str, Any]
# More than this is asked about on a terminal: a data set was left in the folder, most often.
LARGE = 200 * 1024 * 1024
SHOWN, TRIES = 8, 4
_WARNING = re.compile(r'299 trainyard "([^"]*)"')


def submit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", default="", help="a CustomJob or its jobSpec, as JSON (or YAML); - for stdin"
    )
    parser.add_argument("--name", "--display-name", dest="name", default="", help="how the job is called")
    parser.add_argument(
        "--label", "--labels", action="append", default=[], metavar="KEY=VALUE", help="repeat it"
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="a variable; repeat it"
    )
    parser.add_argument("--timeout", default="", metavar="S", help="end the job after so many seconds")
    parser.add_argument("--enable-web-access", action="store_true", help="as gcloud has it")
    gcloud = parser.add_argument_group("pools, as gcloud has them")
    gcloud.add_argument(
        "--worker-pool-spec", action="append", default=[], metavar="KEY=VALUE,...", help="repeat it"
    )
    gcloud.add_argument("--command", default="", metavar="WORD,...", help="the command of the containers")
    gcloud.add_argument("--args", default="", metavar="WORD,...", help="arguments of the command or module")
    gcloud.add_argument("--python-package-uris", default="", metavar="URI,...", help="packages, gs://...")
    short = parser.add_argument_group("-- COMMAND")
    short.add_argument("--machine-type", default="", help="default: host")
    short.add_argument("--accelerator", default="", metavar="TYPE[:COUNT]", help="such as NVIDIA_H100_80GB:8")
    short.add_argument("--replicas", type=int, default=0, help="how many (1)")
    short.add_argument("--image", default="", help="a container image (default: host, the host itself)")
    short.add_argument("--folder", default="", help="what is uploaded (default: this folder)")
    short.add_argument("--no-upload", action="store_true", help="upload nothing: the command is on the hosts")
    submit_options.add_arguments(parser)
    after = parser.add_argument_group("before and after")
    after.add_argument("--dry-run", action="store_true", help="only show the job and what would be uploaded")
    after.add_argument("-y", "--yes", action="store_true", help="do not ask about large uploads")
    after.add_argument(
        "-f", "--follow", action="store_true", help="show the logs, then end with the job's exit code"
    )
    after.add_argument("--wait", action="store_true", help="wait for the end; the exit code is the job's")
    after.add_argument(
        "--files", action="store_true", help="wait until the files that it wrote are stored, too"
    )
    after.add_argument("--json", action="store_true", help="for programs")


def submit(session: Session) -> int:
    args = session.args
    job, folders = _job(args)
    _common(args, job)
    trees = {pool: read_tree(folder) for pool, folder in folders.items()}
    for tree in {tree.root: tree for tree in trees.values()}.values():
        _show_tree(tree)
    if args.dry_run:
        print_json(job)
        return 0
    if not args.yes and not _agreed(trees):
        print("Nothing is submitted.", file=sys.stderr)
        return REFUSED
    shipped: dict[Path, str] = {}
    for pool, tree in trees.items():
        if tree.root not in shipped:
            shipped[tree.root] = _shipped(session, tree)
        code = {"artifact": shipped[tree.root]}
        job["jobSpec"]["workerPoolSpecs"][pool].setdefault("trainyard", {})["code"] = code
    made = submitted(session, session.custom_jobs, job)
    return _afterwards(session, made)


def _job(args: argparse.Namespace) -> tuple[Document, dict[int, Path]]:
    """The document of the job, and the folder of each pool that brings one."""
    ways = [bool(args.file), bool(args.worker_pool_spec), bool(args.words)]
    if sum(ways) != 1:
        raise ClientError(
            "Say what to submit, in one way.",
            "A file; --worker-pool-spec=...; or -- COMMAND, such as: trainyard submit -- python train.py",
            NOT_UNDERSTOOD,
        )
    check_options(args, FILE if args.file else POOLS if args.worker_pool_spec else COMMAND)
    if args.file:
        return _from_file(args.file), {}
    if args.worker_pool_spec:
        return _from_pools(args)
    return _from_command(args)


def _from_command(args: argparse.Namespace) -> tuple[Document, dict[int, Path]]:
    container: Document = {"imageUri": args.image or "host", "command": args.words}
    machine: Document = {"machineType": args.machine_type or "host"}
    if args.accelerator:
        kind, _, count = args.accelerator.partition(":")
        machine.update(acceleratorType=kind, acceleratorCount=_count(count or "1"))
    pools = [{"machineSpec": machine, "replicaCount": "1", "containerSpec": container}]
    if args.replicas > 1:
        # As everywhere in Vertex, the first pool has one replica: the chief.
        pools.append({**pools[0], "replicaCount": str(args.replicas - 1)})
    no_folder = args.no_upload or args.git
    folders = {} if no_folder else {number: Path(args.folder or ".") for number in range(len(pools))}
    return _named(Path(args.words[0]).name + " " + " ".join(args.words[1:2]), pools), folders


def _count(text: str) -> int:
    if not text.isdigit():
        raise ClientError(
            f"--accelerator: {text!r} is no number.", "Such as NVIDIA_H100_80GB:8", NOT_UNDERSTOOD
        )
    return int(text)


def _named(name: str, pools: list[Document]) -> Document:
    return {"displayName": name.strip()[:128] or "job", "jobSpec": {"workerPoolSpecs": pools}}


def _from_pools(args: argparse.Namespace) -> tuple[Document, dict[int, Path]]:
    pools, folders = [], {}
    packages = _words(args.python_package_uris)
    for number, text in enumerate(args.worker_pool_spec):
        given = worker_pool_spec.parsed(text)
        pools.append(worker_pool_spec.document(given, _words(args.command), _words(args.args), [], packages))
        if "local-package-path" in given:
            folders[number] = Path(given["local-package-path"])
    check_pools(args, pools)
    return _named("job", pools), folders


def _words(text: str) -> list[str]:
    """A list as gcloud has it: separated by commas, or by what stands between two ^ at the begin."""
    separator = ","
    if text.startswith("^") and "^" in text[1:]:
        separator, _, text = text[1:].partition("^")
    return text.split(separator) if text else []


def read_document(name: str) -> Document:
    """The object in a file; - for stdin."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ClientError(f"{name} cannot be read: {problem}", "", NOT_UNDERSTOOD) from None
    found = _parsed(text, name)
    if not isinstance(found, dict):
        raise ClientError(f"{name} has no job: an object is expected.", "", NOT_UNDERSTOOD)
    return found


def _from_file(name: str) -> Document:
    found = read_document(name)
    if "jobSpec" in found or "job_spec" in found:
        return found
    # What gcloud takes as --config: the specification alone.
    if "workerPoolSpecs" in found or "worker_pool_specs" in found:
        return {"displayName": Path(name).stem if name != "-" else "job", "jobSpec": found}
    raise ClientError(
        f"{name} has neither jobSpec nor workerPoolSpecs.", "docs/using.md shows one.", NOT_UNDERSTOOD
    )


def _parsed(text: str, name: str) -> object:
    """JSON, or YAML where the file is called so and PyYAML is here."""
    if not name.endswith((".yaml", ".yml")):
        try:
            return json.loads(text)
        except ValueError as problem:
            raise ClientError(f"{name} is no JSON: {problem}", "", NOT_UNDERSTOOD) from None
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        raise ClientError(
            "YAML needs PyYAML.", "Run: pip install pyyaml (or give JSON)", NOT_UNDERSTOOD
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise ClientError(f"{name} is no YAML: {problem}", "", NOT_UNDERSTOOD) from None


def _common(args: argparse.Namespace, job: Document) -> None:
    """What options say beside the pools. They win over a file."""
    name_and_labels(args, job)
    spec = job[spelled(job, "jobSpec")]
    if args.enable_web_access:
        spec[spelled(spec, "enableWebAccess")] = True
    if args.timeout:
        spec["scheduling"] = {**(spec.get("scheduling") or {}), "timeout": args.timeout.rstrip("s") + "s"}
    variables = [dict(zip(("name", "value"), _pair(each, "--env"))) for each in args.env]
    if variables:
        set_variables(spec.get(spelled(spec, "workerPoolSpecs")) or [], variables)
    submit_options.apply(args, job)


def name_and_labels(args: argparse.Namespace, document: Document) -> None:
    if args.name:
        document.pop("display_name", None)
        document["displayName"] = args.name
    labels = dict(_pair(each, "--label") for each in _each(args.label))
    if labels:
        document["labels"] = {**document.get("labels", {}), **labels}


def _each(texts: list[str]) -> list[str]:
    """gcloud's --labels has several, separated by commas."""
    return [part for text in texts for part in text.split(",")]


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ClientError(f"{option} {text!r}: NAME=VALUE is expected.", "", NOT_UNDERSTOOD)
    return name, value


def _show_tree(tree: Tree) -> None:
    """What is uploaded, and what is left out, before it is done."""
    print(f"Folder {tree.root.resolve()}: {len(tree.files)} files, {size(tree.size)}.", file=sys.stderr)
    for words, names in (("left out", tree.left_out), ("not possible (no files of the folder)", tree.odd)):
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            shown = ", ".join(harmless(name) for name in names[:SHOWN])
            line = f"  {words}: {shown}{more}"
            print(painted(line, "muted") if has_colours(sys.stderr) else line, file=sys.stderr)


def _agreed(trees: Mapping[int, Tree]) -> bool:
    whole = sum(tree.size for tree in trees.values())
    if whole < LARGE or not sys.stdin.isatty():
        return True
    return input(f"Upload {size(whole)}? [y/N] ").strip().lower() in ("y", "yes")


def _shipped(session: Session, tree: Tree) -> str:
    with Progress("Packing", tree.size) as packing, packed(tree, packing) as (file, digest, count):
        packing.clear()
        name = f"{tree.root.resolve().name or 'code'}.tar.gz"
        return upload_artifact(session, file, digest, count, name)


def submitted(session: Session, path: str, job: Document) -> Document:
    """Send the job. A repetition after a lost answer finds the job of the first time."""
    key = f"cli-{uuid.uuid4()}"
    for last in range(TRIES):
        try:
            answer = session.api.request("POST", path, None, job, {"Idempotency-Key": key})
            break
        except Offline:
            if last == TRIES - 1:
                raise
            time.sleep(2.0**last)
    for text in _WARNING.findall(answer.headers.get("Warning", "")):
        print(f"trainyard: {harmless(text)}", file=sys.stderr)
    return answer.document()


def _afterwards(session: Session, made: Document) -> int:
    args = session.args
    number = made["name"].rpartition("/")[2]
    if args.json and not (args.follow or args.wait or args.files):
        print_json(made)
    else:
        print(
            f"Submitted job {number}: {session.console.url}/jobs/{number}/",
            file=sys.stderr if args.follow else sys.stdout,
        )
        sys.stdout.flush()
    if args.follow:
        defaults = {
            "replica": [],
            "since": "",
            "grep": "",
            "ignore_case": False,
            "timestamps": False,
            "plain": False,
        }
        vars(args).update(job=number, **defaults)
        logs.logs(session)
    if args.follow or args.wait or args.files:
        vars(args).update(job=number, timeout=0.0, quiet=False)
        return wait.wait(session)
    return 0


ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {"submit": submit_arguments}
