"""The registries of images: how they are named, and which one an image comes from. Pure."""

from __future__ import annotations

import re

from agents.infra.texts import said

# Where engines look for images whose name begins with no registry.
DOCKER_HUB = "docker.io"
REGISTRY_RULE = said("must be the name of a registry, with its port where it has one, such as ghcr.io.")
_REGISTRY = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::[0-9]{1,5})?", re.ASCII)


def is_registry(name: str) -> bool:
    """Whether images can name this as their registry."""
    return bool(_REGISTRY.fullmatch(name)) and _is_host(name)


def registry_of(image: str) -> str:
    """The registry that an image is pulled from."""
    first, slash, _ = image.partition("/")
    return first.lower() if slash and _is_host(first) else DOCKER_HUB


def _is_host(name: str) -> bool:
    """As engines tell `ghcr.io/lab/train` from `lab/train`."""
    return "." in name or ":" in name or name == "localhost"
