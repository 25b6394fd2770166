"""The Reduction Server: workerpool2 sums the gradients of workerpool0 and workerpool1. Pure.

Vertex names an image of its own for it. Trainyard's reducer is a module that the runner puts on hosts; it is run by
what runs the primary: the same Python, environment or image, because it needs numpy.
"""

from __future__ import annotations

import re
from dataclasses import replace

from agents.infra.texts import said
from jobs.rules.spec.custom_job import CustomJobSpec, Pool
from jobs.rules.spec.json_fields import Complaints
from jobs.rules.spec.tasks import HOST_IMAGE, REDUCTION_SERVER, Container, PythonPackage

POOL = 2
MODULE = "trainyard_reduction.reducer"
MACHINE = "n1-highcpu-16"
REGIONS = ("us", "europe", "asia")
IMAGES = tuple(
    f"{region}-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest" for region in REGIONS
)
_IMAGE = re.compile(
    r"(?:us|europe|asia)-docker\.pkg\.dev/vertex-ai-restricted/training/reductionserver(?:[:@].*)?", re.ASCII
)
TRAINER, REDUCER = "trainer", "reducer"
_PYTHON = re.compile(r"python[\d.]*", re.ASCII)
# Programs that are installed beside the Python that they run with.
_LAUNCHER = re.compile(r"torchrun|accelerate|deepspeed", re.ASCII)


def is_image(image: str) -> bool:
    return bool(_IMAGE.fullmatch(image))


def asks(pool: Pool | None) -> bool:
    """Whether this pool asks to be reducers, by its runtime or by its image."""
    return pool is not None and (pool.runtime == REDUCTION_SERVER or is_image(pool.task.image))


def reducers(spec: CustomJobSpec) -> Pool | None:
    """The pool of reducers, if the job has one: as it was asked for, or as it is executed."""
    pool = spec.pools[POOL] if len(spec.pools) > POOL else None
    return pool if pool is not None and (asks(pool) or pool.task.argv[1:] == ("-m", MODULE)) else None


def role_of(spec: CustomJobSpec, number: int) -> str:
    """What a replica of this pool is in the reduction; empty if nothing."""
    if reducers(spec) is None:
        return ""
    return REDUCER if number == POOL else TRAINER if number < POOL else ""


def check(pools: tuple[Pool | None, ...], complaints: Complaints) -> None:
    """Complain of what reducers cannot be or have."""
    for number, pool in enumerate(pools):
        path = f"job_spec.worker_pool_specs[{number}]"
        if pool is None or not asks(pool):
            if pool is not None and pool.wire:
                complaints.add(f"{path}.trainyard.wire", said("is for Reduction Server only: leave it out."))
            continue
        if number != POOL:
            complaints.add(
                f"{path}.container_spec.image_uri",
                said("Reduction Server belongs into the third pool, worker_pool_specs[2]."),
            )
        if pool.machine.accelerator_count:
            complaints.add(
                f"{path}.machine_spec.accelerator_count",
                said("Reduction Server uses no GPU: leave out accelerator_type and accelerator_count."),
            )
        _check_program(pool, path, complaints)


def _check_program(pool: Pool, path: str, complaints: Complaints) -> None:
    task = pool.task
    if isinstance(task, PythonPackage):
        complaints.add(
            f"{path}.python_package_spec",
            said("Reduction Server has a program of its own: leave this out, or leave out the runtime."),
        )
        return
    if task.image != HOST_IMAGE and not is_image(task.image):
        complaints.add(
            f"{path}.container_spec.image_uri",
            said(
                "must be left out beside the runtime reduction-server, or be {image}: reducers are run by what runs "
                "the primary.",
                image=IMAGES[0],
            ),
        )
    if len(task.command) > 1 or task.args:
        complaints.add(
            f"{path}.container_spec.{'args' if task.args else 'command'}",
            said(
                "Reduction Server has a program of its own: leave this out. A command of one string names the Python "
                "that runs it."
            ),
        )
    if pool.code is not None:
        complaints.add(
            f"{path}.trainyard.code", said("Reduction Server runs no code of the job: leave this out.")
        )


def as_executed(spec: CustomJobSpec) -> CustomJobSpec:
    """The spec with what its reducers execute, which is the primary's runtime with another program."""
    pool, primary = reducers(spec), spec.pools[0]
    if pool is None or primary is None:
        return spec
    python = pool.task.command[0] if pool.task.command else _python_of(primary)
    env = {**dict(primary.task.env), **dict(pool.task.env)}
    task: Container | PythonPackage
    if isinstance(primary.task, PythonPackage):
        task = replace(
            primary.task, module=MODULE, args=(), env=tuple(env.items()), secrets=pool.task.secrets
        )
    else:
        words, variables = (python, "-m", MODULE), tuple(env.items())
        task = replace(primary.task, command=words, args=(), env=variables, secrets=pool.task.secrets)
    own = replace(pool, task=task, runtime=primary.runtime)
    return replace(spec, pools=(*spec.pools[:POOL], own, *spec.pools[POOL + 1 :]))


def _python_of(primary: Pool) -> str:
    """The Python that runs the primary, as far as its command shows it."""
    first = primary.task.argv[0] if primary.task.argv else ""
    place, slash, name = first.rpartition("/")
    if _PYTHON.fullmatch(name):
        return first
    return f"{place}/python3" if slash and _LAUNCHER.fullmatch(name) else "python3"
