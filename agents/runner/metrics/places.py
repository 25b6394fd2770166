"""Where the metrics of a run are on its host, and the variables by which its program finds that place.

In the run's directory, `metrics/` is the program's own. What the runner has read stands beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple
from urllib.parse import unquote, urlsplit

from agents.runner.files import read_json, write_file
from agents.runner.host.mounts import may_be_another_mount

HYPERTUNE_VARIABLE, OWN_VARIABLE = "CLOUD_ML_HP_METRIC_FILE", "TRAINYARD_METRICS"
TENSORBOARD_VARIABLE, MLFLOW_VARIABLE = "AIP_TENSORBOARD_LOG_DIR", "MLFLOW_TRACKING_URI"
WANDB_VARIABLE = "WANDB_DIR"
# Below the work directory: where MLflow and W&B write by themselves, and where TensorBoard's files go that have no
# other place.
MLFLOW_DIRECTORY, WANDB_DIRECTORY, TENSORBOARD_DIRECTORY = "mlruns", "wandb", "tensorboard"
# Of cloudml-hypertune's file: all lines that were ever in it; and what was read of all sources.
SPOOL, JOURNAL, STATE, SOURCES = "metrics.spool", "metrics.journal", "metrics.state", "metrics.sources"
LOCK, HELD = "metrics.lock", "metrics.held"


def metrics_directory(directory: str) -> str:
    return os.path.join(directory, "metrics")


def hypertune_path(directory: str) -> str:
    return os.path.join(directory, "metrics", "output.metrics")


def own_path(directory: str) -> str:
    return os.path.join(directory, "metrics", "reports.jsonl")


class Place(NamedTuple):
    """A directory into which the program may write. On the way from `root` to `below` no link is followed: a program in
    a container could lead us where it cannot go itself."""

    root: str
    below: str


def make_places(
    directory: str, env: Mapping[str, str], runtime: Mapping[str, Any] | None, tmp: str = ""
) -> None:
    """Before a run starts: the directory of its metrics, and a note where its program may write others.

    A full disk costs the metrics, not the run.
    """
    with contextlib.suppress(OSError):
        os.mkdir(metrics_directory(directory), 0o700)
        if runtime is not None:
            os.chmod(metrics_directory(directory), 0o777)  # its image may have a user of its own
        named = {
            "tensorboard": env.get(TENSORBOARD_VARIABLE, ""),
            "mlflow": _file_store(env.get(MLFLOW_VARIABLE, "")),
            "wandb": env.get(WANDB_VARIABLE, ""),
        }
        found: Dict[str, Any] = {name: path for name, path in named.items() if path.startswith("/")}
        if found and runtime is not None:
            own = [metrics_directory(directory), *([tmp] if tmp else [])]
            mounts = [[str(source), str(target)] for source, target, _ in runtime.get("mounts") or []]
            found["mounts"] = [*mounts, *([path, path] for path in own)]
        if found:
            write_file(os.path.join(directory, SOURCES), json.dumps(found).encode("ascii"))


def _file_store(address: str) -> str:
    """The directory of MLflow's file store, if the address is one."""
    return unquote(urlsplit(address).path) if address.startswith("file:") else address


def outside(path: str, mounts: Iterable[List[str]]) -> Place | None:
    """Where on the host a path of a container is; None for one that only the container has. `mounts`: [from, to]."""
    path = os.path.normpath("/" + path.lstrip("/"))
    for source, target in sorted(mounts, key=lambda mount: -len(mount[1])):
        target = os.path.normpath(target).rstrip("/")
        if path == target or path.startswith(target + "/"):
            return Place(source, path[len(target) + 1 :])
    return None


def variables(directory: str, work: str) -> Dict[str, str]:
    """What the program is told, unless its order says something else: a job with outputs has TensorBoard's files there.
    Whoever writes these files makes the directory."""
    return {
        HYPERTUNE_VARIABLE: hypertune_path(directory),
        OWN_VARIABLE: own_path(directory),
        TENSORBOARD_VARIABLE: os.path.join(work, TENSORBOARD_DIRECTORY, ""),
    }


def sources_of(directory: str, work: str) -> Dict[str, Place]:
    """Where else the program of this run may report: directories that it was told, and that it can reach."""
    found = read_json(os.path.join(directory, SOURCES)) or {}
    mounts = found.pop("mounts", None)
    paths = {name: path for name, path in found.items() if isinstance(path, str) and path.startswith("/")}
    if mounts is None:
        return {name: Place(path, "") for name, path in paths.items()}
    mounts = [*mounts, *([[work, work]] if work else [])]
    places = {name: outside(path, mounts) for name, path in paths.items()}
    return {name: place for name, place in places.items() if place is not None}


def module_directory(directory: str) -> str:
    """Of all runs of the deployment: `runs/<run>` is two below it."""
    return os.path.join(os.path.dirname(os.path.dirname(directory)), "python")


def module_for_containers(directory: str) -> str:
    """The same, where it can be mounted; else empty."""
    place = module_directory(directory)
    return place if os.path.isdir(place) else ""


def with_module(env: Dict[str, str], directory: str) -> None:
    """Let Python find `hypertune`, last of all that PYTHONPATH names."""
    before = env.get("PYTHONPATH")
    place = module_directory(directory)
    env["PYTHONPATH"] = "%s:%s" % (before, place) if before else place


def may_have_reports(base: str, directory: str, facts: Mapping[str, Any]) -> bool:
    """Whether a program may have reported anything. No path is touched that may not answer."""
    return may_use_directories(base, directory, facts) or has_own_reports(directory)


def may_use_directories(base: str, directory: str, facts: Mapping[str, Any]) -> bool:
    """Whether a program may have written into directories of its own. No path is touched that may not answer."""
    if os.path.exists(os.path.join(directory, SOURCES)):
        return True
    work = str(facts.get("work") or "")
    if not work:
        return False
    if not work.startswith(base + os.sep) or may_be_another_mount(base, work):
        return True
    own = (MLFLOW_DIRECTORY, WANDB_DIRECTORY, TENSORBOARD_DIRECTORY)
    return any(os.path.lexists(os.path.join(work, name)) for name in own)


def has_own_reports(directory: str) -> bool:
    """Whether something was reported in the run's own directory."""
    if os.path.lexists(own_path(directory)):
        return True
    for name in (SPOOL, JOURNAL, HELD):
        if os.path.lexists(os.path.join(directory, name)):
            return True
    with contextlib.suppress(OSError):
        return os.lstat(hypertune_path(directory)).st_size > 0
    return False
