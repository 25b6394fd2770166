"""The commands of container engines for images: where podman, docker and apptainer differ.

An image is named as people name it. Nothing here is a line for a shell: each command is a list.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import Dict, List

PODMAN, DOCKER, APPTAINER = "podman", "docker", "apptainer"
ENGINES = (PODMAN, DOCKER, APPTAINER)
# Where engines are, although the PATH of a login that is not interactive may lack it.
_PLACES = ("/usr/bin", "/usr/local/bin", "/usr/sbin", "/bin")


def find_engine(name: str) -> str | None:
    """The path of this engine's program, or None: it is not on this host."""
    if name not in ENGINES:
        return None
    path = os.pathsep.join([os.environ.get("PATH", ""), *_PLACES])
    return shutil.which(name, path=path)


def describe_image(program: str, image: str) -> List[str]:
    """Prints a JSON list with one description of the image; fails if the image is not on the host."""
    return [program, "image", "inspect", "--", image]


def say_size(program: str, image: str) -> List[str]:
    """Prints the bytes of all layers of the image."""
    return [program, "image", "inspect", "--format", "{{.Size}}", "--", image]


def pull_image(engine: str, program: str, image: str, credentials: str) -> List[str]:
    """`credentials`: for podman a file, for docker a directory with `config.json`; empty for none."""
    if engine == DOCKER:
        return [program, *(["--config", credentials] if credentials else []), "pull", "--", image]
    return [program, "pull", *(["--authfile", credentials] if credentials else []), "--", image]


def load_image(program: str, archive: str) -> List[str]:
    """Both `docker save` and the archives of OCI are read. What was loaded is printed."""
    return [program, "load", "--input", archive]


def tag_image(program: str, image: str, name: str) -> List[str]:
    return [program, "tag", image, name]


def list_images(program: str) -> List[str]:
    """Prints a name and an ID a line."""
    return [program, "image", "ls", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}"]


def list_ids(program: str) -> List[str]:
    """Prints the IDs of all images, also of those without a name."""
    return [program, "image", "ls", "--all", "--no-trunc", "--quiet"]


def remove_image(program: str, image: str) -> List[str]:
    """Takes a name from its image, which goes with the last one. Refused while a container is made of it."""
    return [program, "image", "rm", image]


def say_storage(engine: str, program: str) -> List[str]:
    """Prints the directory where the engine has its images."""
    form = "{{.DockerRootDir}}" if engine == DOCKER else "{{.Store.GraphRoot}}"
    return [program, "info", "--format", form]


def remove_container_words(engine: str, program: str, name: str) -> List[str]:
    """Ends a container at once, and removes all that the engine keeps for it."""
    if engine == DOCKER:
        return [program, "rm", "--force", "--volumes", name]
    return [program, "rm", "--force", "--ignore", "--time", "0", "--volumes", name]


def parse_description(output: str) -> Dict[str, str]:
    """(id, digest) of what `describe_image` printed. The digest is that of the registry, if it came from one."""
    try:
        found = json.loads(output)[0]
    except (ValueError, LookupError, TypeError):
        return {"id": "", "digest": ""}
    named = [str(each).partition("@")[2] for each in found.get("RepoDigests") or [] if "@" in str(each)]
    return {
        "id": str(found.get("Id") or "").rpartition(":")[2],
        "digest": str(found.get("Digest") or (named[0] if named else "")),
    }


def parse_names(output: str) -> List[str] | None:
    """The names, with tags, of what `describe_image` printed; None if it says none of that."""
    try:
        return [str(each) for each in json.loads(output)[0].get("RepoTags") or []]
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def is_name_of(found: str, asked: str) -> bool:
    """Whether an engine shows the image of a pull as `found`. Engines write names of Docker Hub longer, or shorter."""
    if "@" in asked:
        return False  # by its digest: such an image gets no name
    if ":" not in asked.rpartition("/")[2]:
        asked += ":latest"
    hub = ("", "docker.io/", "docker.io/library/", "library/")
    return any(found == each + asked or asked == each + found for each in hub)
