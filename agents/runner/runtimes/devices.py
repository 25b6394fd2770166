"""The GPUs of a container: by their names where its engine can give them so, else by their device nodes."""

from __future__ import annotations

import os
from typing import Any, List, Mapping

from agents.runner.host.cdi import KIND, cdi_names
from agents.runner.host.gpus import device_node, gpu_minors
from agents.runner.runs.orders import Refused
from agents.runner.runtimes.docker_options import gpus_words, has_nvidia_hook
from agents.runner.runtimes.engine_commands import DOCKER, PODMAN


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
