"""What Docker is asked for in another way than podman: a client that only starts the container, its user, its GPUs.

Docker's daemon is the parent of its containers, and may belong to root although the login does not.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from typing import Any, Dict, List, Mapping

from agents.runner.programs import output_of
from agents.runner.runs.orders import Order, Refused

ANSWER_S = 20.0
# The init that the daemon puts into a container (`--init`). Debian's and Docker's own packages have it there.
INIT_PLACES = (
    "/usr/bin/docker-init",
    "/usr/local/bin/docker-init",
    "/usr/libexec/docker/docker-init",
    "/usr/local/libexec/docker/docker-init",
)
# By it the daemon gives a container the GPUs that are named, with NVIDIA's libraries.
NVIDIA_HOOK = "nvidia-container-runtime-hook"
# What the daemon can limit, and what it is called in the answers of its versions.
_LIMITS = (("memory", ("MemoryLimit",)), ("cpu", ("CpuCfsQuota", "CPUCfsQuota")))
# What Docker keeps of the output of a container is two files of this size, at least.
KEPT_MB = 16


def look(program: str) -> Dict[str, str]:
    """What the daemon says about itself, as far as starts depend on it. Raises Refused where it does not answer."""
    status, text = output_of([program, "info", "--format", "{{json .}}"], ANSWER_S)
    found = parse_info(text)
    if found.get("ServerErrors") or not found.get("ServerVersion"):
        raise Refused("runtime", words_of(text) or "docker info ended with status %d" % status)
    options = [str(each) for each in found.get("SecurityOptions") or []]
    return {
        "rootless": "yes" if is_rootless(found) else "",
        "remapped": "yes" if any(each.startswith("name=userns") for each in options) else "",
        "limits": " ".join(limits_of(found)),
        "cdi": "yes" if takes_cdi(found) else "",
    }


def parse_info(text: str) -> Dict[str, Any]:
    """What `docker info` printed, among other lines."""
    for line in text.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                return found if isinstance(found, dict) else {}
    return {}


def words_of(text: str) -> str:
    """Why the daemon does not answer, in the words of its client: a part of the answer, or a line beside it."""
    errors = parse_info(text).get("ServerErrors")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("{")]
    found = errors if isinstance(errors, list) and errors else lines
    return str(found[0]).strip()[:1000] if found else ""


def limits_of(info: Mapping[str, Any]) -> List[str]:
    """What the daemon can limit."""
    return [name for name, fields in _LIMITS if any(map(info.get, fields))]


def takes_cdi(info: Mapping[str, Any]) -> bool:
    """Whether the daemon gives containers what CDI specs name: only then it says where it looks for them."""
    return bool(info.get("CDISpecDirs"))


def is_rootless(info: Mapping[str, Any]) -> bool:
    return any(str(each).startswith("name=rootless") for each in info.get("SecurityOptions") or [])


def check_network(known: Mapping[str, Any], order: Order) -> None:
    """Refuse a replica of several where `--network=host` is not the network of the host: without root it is that of
    the daemon, in which nobody reaches the port of a replica."""
    if known.get("rootless") and ("TF_CONFIG" in order.env or order.reduction):
        raise Refused(
            "runtime",
            "Docker without root gives containers another network than the host's, so the replicas of a job cannot "
            "reach each other: use podman, or Docker of root",
        )


def run_words(known: Mapping[str, Any], order: Order, env_file: str) -> List[str]:
    """The client makes and starts the container, and ends. Its output is read from what Docker keeps of it, so that
    whoever reads may be killed, and the next one goes on where it was."""
    kept = max(KEPT_MB, order.log_budget_mb)
    words = [known["program"], "run", "--detach", "--name", known["name"], "--pull=never"]
    words += ["--log-driver=local", "--log-opt", "max-size=%dm" % kept]
    words += ["--log-opt", "max-file=2", "--log-opt", "compress=false"]
    words += ["--network=host", "--security-opt=label=disable", "--restart=no", "--env-file", env_file]
    if not known.get("rootless"):
        # Else a program of the image with setuid is root on the host.
        words += ["--security-opt=no-new-privileges"]
    if known.get("remapped"):
        words += ["--userns=host"]  # else nobody in the container could write into the directories of the run
    if any(map(os.path.exists, INIT_PLACES)):
        words += ["--init"]
    return words


def user_words(known: Mapping[str, Any]) -> List[str]:
    """A login without root runs each image as itself: so it may write into the directories of its runs, and may
    signal and measure its programs. For a daemon without root, the login is root in the container."""
    if known.get("rootless"):
        return ["--user", "0:0"]
    return ["--user", "%d:%d" % (os.getuid(), os.getgid())]


def has_nvidia_hook() -> bool:
    return shutil.which(NVIDIA_HOOK) is not None


def gpus_words(gpus: List[str]) -> List[str]:
    return ["--gpus", '"device=%s"' % ",".join(gpus)]
