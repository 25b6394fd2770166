"""Where the metrics of a run are on its host, and the variables by which its program finds that place.

In the run's directory, `metrics/` is the program's own. What the runner has read stands beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Dict, List, Mapping
from urllib.parse import unquote, urlsplit

from agents.runner.files import read_json, write_file
from agents.runner.mounts import may_be_another_mount

HYPERTUNE_VARIABLE, OWN_VARIABLE = "CLOUD_ML_HP_METRIC_FILE", "TRAINYARD_METRICS"
TENSORBOARD_VARIABLE, MLFLOW_VARIABLE = "AIP_TENSORBOARD_LOG_DIR", "MLFLOW_TRACKING_URI"
MLFLOW_DIRECTORY = "mlruns"
# Of cloudml-hypertune's file: all lines that were ever in it; and what was read of all sources.
SPOOL, JOURNAL, STATE, SOURCES = "metrics.spool", "metrics.journal", "metrics.state", "metrics.sources"
LOCK, HELD = "metrics.lock", "metrics.held"


def metrics_directory(directory: str) -> str:
    return os.path.join(directory, "metrics")


def hypertune_path(directory: str) -> str:
    return os.path.join(directory, "metrics", "output.metrics")


def own_path(directory: str) -> str:
    return os.path.join(directory, "metrics", "reports.jsonl")


def make_places(directory: str, env: Mapping[str, str], runtime: Mapping[str, Any] | None) -> None:
    """Before a run starts: the directory of its metrics, and a note where its program may write others.

    A program in a container has other paths. A full disk costs the metrics, not the run.
    """
    mounts = (runtime or {}).get("mounts") or []
    with contextlib.suppress(OSError):
        os.mkdir(metrics_directory(directory), 0o700)
        if runtime is not None:
            os.chmod(metrics_directory(directory), 0o777)  # its image may have a user of its own
        found = {}
        logs = env.get(TENSORBOARD_VARIABLE, "")
        if logs.startswith("/"):
            found["tensorboard"] = outside(logs, mounts)
        store = _file_store(env.get(MLFLOW_VARIABLE, ""))
        if store:
            found["mlflow"] = outside(store, mounts)
        if found:
            write_file(os.path.join(directory, SOURCES), json.dumps(found).encode("ascii"))


def _file_store(address: str) -> str:
    """The directory of MLflow's file store, if the address is one."""
    path = unquote(urlsplit(address).path) if address.startswith("file:") else address
    return path if path.startswith("/") else ""


def outside(path: str, mounts: List[List[str]]) -> str:
    """The host's path of one that the container has."""
    for source, target, _ in sorted(mounts, key=lambda mount: -len(mount[1])):
        if path == target or path.startswith(target.rstrip("/") + "/"):
            return source.rstrip("/") + path[len(target.rstrip("/")) :]
    return path


def variables(directory: str) -> Dict[str, str]:
    return {HYPERTUNE_VARIABLE: hypertune_path(directory), OWN_VARIABLE: own_path(directory)}


def sources_of(directory: str) -> Dict[str, Any]:
    """Where else the program of this run may report: directories of its own."""
    found = read_json(os.path.join(directory, SOURCES)) or {}
    return {name: path for name, path in found.items() if isinstance(path, str) and path.startswith("/")}


def module_directory(directory: str) -> str:
    """Of all runs of the deployment: `runs/<run>` is two below it."""
    return os.path.join(os.path.dirname(os.path.dirname(directory)), "python")


def with_module(env: Dict[str, str], directory: str) -> None:
    """Let Python find `hypertune`, last of all that PYTHONPATH names."""
    before = env.get("PYTHONPATH")
    place = module_directory(directory)
    env["PYTHONPATH"] = "%s:%s" % (before, place) if before else place


def may_have_reports(base: str, directory: str, facts: Mapping[str, Any]) -> bool:
    """Whether a program may have reported anything. No path is touched that may not answer."""
    work = str(facts.get("work") or "")
    if work and (not work.startswith(base + os.sep) or may_be_another_mount(base, work)):
        return True
    return has_reports(directory, work)


def has_reports(directory: str, work: str) -> bool:
    if os.path.exists(os.path.join(directory, SOURCES)) or os.path.exists(own_path(directory)):
        return True
    for name in (SPOOL, JOURNAL, HELD):
        if os.path.exists(os.path.join(directory, name)):
            return True
    with contextlib.suppress(OSError):
        if os.path.getsize(hypertune_path(directory)):
            return True
    return bool(work) and os.path.lexists(os.path.join(work, MLFLOW_DIRECTORY))
