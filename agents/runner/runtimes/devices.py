"""The GPUs of a container: by their names where its engine can give them so, else by their device nodes."""

from __future__ import annotations

import os
from typing import Any, List, Mapping

from agents.runner.host.gpus import device_node, gpu_minors
from agents.runner.runs.orders import Refused
from agents.runner.runtimes.docker_options import gpus_words, has_nvidia_hook
from agents.runner.runtimes.engine_commands import DOCKER, PODMAN

# Where a spec of the devices of NVIDIA is, if containers can get GPUs by their names.
CDI_PLACES = ("/etc/cdi", "/var/run/cdi")


def device_options(gpus: List[str], known: Mapping[str, Any]) -> List[str]:
    """GPUs by the names of their CDI spec, where this host has one; else the nodes of these devices alone."""
    if not gpus:
        return []
    if known["kind"] == DOCKER and has_nvidia_hook():
        return gpus_words(gpus)
    if has_cdi(gpus) and (known["kind"] == PODMAN or known["cdi"]):
        return [part for gpu in gpus for part in ("--device", "nvidia.com/gpu=%s" % gpu)]
    minors = gpu_minors()
    if any(gpu not in minors for gpu in gpus):
        raise Refused("runtime", "the device of a GPU is not known: generate a CDI spec with nvidia-ctk")
    names = ["nvidia%d" % minors[gpu] for gpu in gpus]
    shared = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
    names += [name for name in shared if os.path.exists(device_node(name))]
    return [part for name in names for part in ("--device", "%s:/dev/%s" % (device_node(name), name))]


def has_cdi(gpus: List[str]) -> bool:
    """Whether a spec names all of these devices."""
    texts = []
    for place in CDI_PLACES:
        try:
            names = os.listdir(place)
        except OSError:
            continue
        for name in names:
            try:
                with open(os.path.join(place, name), encoding="utf-8", errors="replace") as file:
                    texts.append(file.read(1 << 20))
            except OSError:
                continue
    return all(any(gpu in text and "nvidia.com/gpu" in text for text in texts) for gpu in gpus)
