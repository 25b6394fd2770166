"""The GPUs of a container: by their names where its engine can give them so, else by their device nodes. And the cards
of the network by which the GPUs of several hosts reach each other's memory.
"""

from __future__ import annotations

import os
import re
import resource
from typing import Any, List, Mapping, Optional

from agents.runner.host.cdi import KIND, cdi_names
from agents.runner.host.gpus import device_node, gpu_minors
from agents.runner.runs.orders import Refused
from agents.runner.runtimes.docker_options import gpus_words, has_nvidia_hook
from agents.runner.runtimes.engine_commands import DOCKER, PODMAN

INFINIBAND = "/dev/infiniband"
# The nodes by which programs send and receive. The others are for whoever manages the network.
_NODE = re.compile(r"uverbs[0-9]{1,4}|rdma_cm")
_SYS_RESOURCE = 1 << 24
_ALL_USERS = "0 0 4294967295"


def device_options(gpus: List[str], known: Mapping[str, Any]) -> List[str]:
    """GPUs by the names of their CDI spec, where this host has one; else the nodes of these devices alone."""
    if not gpus:
        return []
    if known["kind"] == DOCKER and has_nvidia_hook():
        return gpus_words(gpus)
    if (known["kind"] == PODMAN or known["cdi"]) and cdi_names().issuperset(gpus):
        return [part for gpu in gpus for part in ("--device", "%s=%s" % (KIND, gpu))]
    minors = gpu_minors()
    if any(gpu not in minors for gpu in gpus):
        raise Refused("runtime", "the device of a GPU is not known: generate a CDI spec with nvidia-ctk")
    names = ["nvidia%d" % minors[gpu] for gpu in gpus]
    shared = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
    names += [name for name in shared if os.path.exists(device_node(name))]
    return [part for name in names for part in ("--device", "%s:/dev/%s" % (device_node(name), name))]


def network_options(gpus: List[str], known: Mapping[str, Any]) -> List[str]:
    """The cards of InfiniBand and RoCE, and memory that stays where they reach it: NCCL uses both where it finds them,
    as in a program of the host, and is several times slower else."""
    nodes = _network_nodes() if gpus else []
    if not nodes:
        return []
    most = _locked_memory(known)
    locked = [] if most is None else ["--ulimit", "memlock=%d:%d" % (most, most)]
    return [*(part for node in nodes for part in ("--device", node)), *locked]


def _network_nodes() -> List[str]:
    try:
        names = sorted(name for name in os.listdir(INFINIBAND) if _NODE.fullmatch(name))
    except OSError:
        return []
    # An engine of a login without root gives what the login may open, and starts nothing that asks for more.
    nodes = [os.path.join(INFINIBAND, name) for name in names]
    return [node for node in nodes if os.access(node, os.R_OK | os.W_OK)]


def _locked_memory(known: Mapping[str, Any]) -> Optional[int]:
    """The most that the engine can allow; -1 for any. None where it is not known: then the engine's own limit holds."""
    if known["kind"] == DOCKER:
        return None if known.get("rootless") else -1
    return -1 if may_raise_limits() else resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]


def may_raise_limits(place: str = "/proc/self") -> bool:
    """Whether limits may be raised over those that this process has: not by a root of a namespace only."""
    try:
        with open(os.path.join(place, "uid_map")) as file:
            is_of_host = " ".join(file.read().split()) == _ALL_USERS
        with open(os.path.join(place, "status")) as file:
            found = re.search(r"^CapEff:\s*([0-9a-f]+)$", file.read(), re.MULTILINE)
    except OSError:
        return False
    return is_of_host and found is not None and bool(int(found.group(1), 16) & _SYS_RESOURCE)
