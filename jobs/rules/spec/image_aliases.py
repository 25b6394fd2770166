"""Which image a location uses in place of the one that a document names. Pure.

An alias is the name of an image without tag and digest, or a prefix of such names that ends in `*`. It stands for
another image, for "host", or for "host:PATH": a Python of the host. Google's prebuilt images need one: their registries
want Google's own accounts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agents.infra.texts import said
from jobs.rules.spec import reduction
from jobs.rules.spec.custom_job import CustomJobSpec, Pool
from jobs.rules.spec.json_fields import Complaints
from jobs.rules.spec.parse_task import is_image
from jobs.rules.spec.runtime_choice import with_engine
from jobs.rules.spec.tasks import HOST_IMAGE, HOST_WITH, PythonPackage, interpreter_of, is_sif, is_stored

ANY = "*"
MAX_NAME = 500
_PREBUILT = re.compile(
    r"(?:[a-z0-9-]+-docker\.pkg\.dev/vertex-ai|(?:[a-z]+\.)?gcr\.io/cloud-aiplatform)/.", re.ASCII
)
_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?/[a-z0-9._/-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Aliases:
    """The aliases of one location, by name."""

    location: str
    images: Mapping[str, str] = field(default_factory=dict)

    def of(self, image: str) -> str | None:
        """What the longest alias that matches stands for, one without `*` before one with it; None if none matches."""
        name = name_of(image)
        matching = [alias for alias in self.images if _matches(alias, name)]
        if not matching:
            return None
        return self.images[max(matching, key=lambda each: (len(each.removesuffix(ANY)), each[-1] != ANY))]


def name_of(image: str) -> str:
    """The name of an image without tag and digest, its registry in small letters."""
    first, *others = image.partition("@")[0].split("/")
    if not others:
        return first.partition(":")[0]
    return "/".join([first.lower(), *others[:-1], others[-1].partition(":")[0]])


def is_prebuilt(image: str) -> bool:
    """Whether it is one of the images that Google keeps for training on Vertex."""
    return bool(_PREBUILT.match(name_of(image)))


def is_alias(name: str) -> bool:
    """Whether this can be an alias. A prefix has at least a registry and a slash: `*` alone is none."""
    if len(name) > MAX_NAME or name == HOST_IMAGE:
        return False
    if name.endswith(ANY):
        return bool(_PREFIX.fullmatch(name.removesuffix(ANY)))
    return "://" not in name and not is_sif(name) and is_image(name) and name_of(name) == name


def may_stand_for(image: str) -> bool:
    """Whether an alias may stand for this. An object belongs to one project, and an alias is for all."""
    if image.startswith(HOST_WITH):
        return _is_host(image)  # else a path with a slip would be an image that is called "host"
    return image == HOST_IMAGE or (is_image(image) and not is_stored(image))


def _is_host(image: str) -> bool:
    return image == HOST_IMAGE or bool(interpreter_of(image))


def images_used(spec: CustomJobSpec, aliases: Aliases) -> dict[int, str]:
    """By the number of the pool, the image that is used in place of the one that it names.

    Raises InvalidDocument where a prebuilt image of Google has no alias, or what it stands for cannot run the task.
    """
    complaints = Complaints()
    found: dict[int, str] = {}
    for number, pool in enumerate(spec.pools):
        if pool is None:
            continue
        if reduction.asks(pool):
            continue  # run by what runs the primary
        image = aliases.of(pool.task.image)
        path = f"job_spec.worker_pool_specs[{number}]"
        if image is not None:
            found[number] = image
            _check(pool, image, path, complaints)
        elif is_prebuilt(pool.task.image):
            complaints.add(
                f"{path}.{pool.task.field}.{pool.task.image_field}",
                said(
                    "is an image of Google's, and location {location} has no alias for it. An admin adds one under "
                    "Hosts → Locations, or with: trainyard location alias {location} {name} host (or the name of an "
                    "image in place of host).",
                    location=aliases.location,
                    name=name_of(pool.task.image),
                ),
            )
    complaints.raise_if_any()
    return found


def images_kept(resolved: Mapping[str, Any]) -> dict[int, str]:
    """The images that were used in place of others when a job was submitted, from `Job.resolved`."""
    pools: Mapping[str, Mapping[str, Any]] = resolved.get("pools", {})
    return {int(number): pool["alias"] for number, pool in sorted(pools.items()) if "alias" in pool}


def engine_kept(resolved: Mapping[str, Any]) -> str:
    """The engine that was chosen at the submit for pools that name none; empty: the first one."""
    return str(resolved.get("engine", ""))


def images_used_document(resolved: Mapping[str, Any]) -> dict[str, object]:
    """The same for people and programs, by the names of the pools; empty if each pool uses the image that it names,
    and the usual engine."""
    images = {f"workerpool{number}": image for number, image in images_kept(resolved).items()}
    engine = engine_kept(resolved)
    return {**({"imagesUsed": images} if images else {}), **({"engineUsed": engine} if engine else {})}


def as_kept(spec: CustomJobSpec, resolved: Mapping[str, Any]) -> CustomJobSpec:
    """The spec as it is executed, by what was found out when its job was submitted."""
    return with_images(spec, images_kept(resolved), engine_kept(resolved))


def with_images(spec: CustomJobSpec, images: Mapping[int, str], engine: str = "") -> CustomJobSpec:
    """The spec as it is executed: with these images, by the numbers of their pools, with `engine` where a pool with an
    image names none, and with the program of reducers."""
    pools = []
    for number, pool in enumerate(spec.pools):
        used = pool and with_image(pool, images.get(number))
        pools.append(used and with_engine(used, engine))
    return reduction.as_executed(replace(spec, pools=tuple(pools)))


def with_image(pool: Pool, image: str | None) -> Pool:
    """The pool with the image that is used; None: with its own."""
    if image is None:
        return pool
    used, python = HOST_IMAGE if _is_host(image) else image, interpreter_of(image)
    if isinstance(pool.task, PythonPackage):
        return replace(pool, task=replace(pool.task, executor_image=used, interpreter=python))
    return replace(pool, task=replace(pool.task, image=used, interpreter=python))


def _matches(alias: str, name: str) -> bool:
    return name.startswith(alias.removesuffix(ANY)) if alias.endswith(ANY) else alias == name


def _check(pool: Pool, image: str, path: str, complaints: Complaints) -> None:
    if _is_host(image) and not pool.task.command:
        complaints.add(
            f"{path}.container_spec.command",
            said('is required: the image stands for "host" here, which has no entrypoint.'),
        )
