"""Which runtime executes each pool of a job, or why none does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agents.infra.texts import said
from jobs.rules.list_text import list_text
from jobs.rules.spec.custom_job import CustomJobSpec, Pool
from jobs.rules.spec.json_fields import Complaints
from jobs.rules.spec.tasks import HOST_IMAGE, PythonPackage, needs_apptainer

PROCESS, PYTHON = "process", "python"
PODMAN, DOCKER, APPTAINER = "podman", "docker", "apptainer"
# The engines by which this version runs containers. Pools that name none are executed by the first of them that hosts
# of their location have.
ENGINES = (PODMAN, DOCKER, APPTAINER)
MAX_NAMED = 8


@dataclass(frozen=True, slots=True)
class Offer:
    """What the hosts of a location can run containers with, by the name of the host. Without hosts nothing is known."""

    engines: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def hosts_without(self, engine: str) -> list[str]:
        return sorted(host for host, engines in self.engines.items() if engine not in engines)


NOTHING_KNOWN = Offer()


def choose_engine(offer: Offer) -> str:
    """The engine of pools that name none. Empty if it is podman: hosts have it, or no host that is known has any."""
    found = frozenset[str]().union(*offer.engines.values())
    first = next((engine for engine in ENGINES if engine in found), PODMAN)
    return "" if first == PODMAN else first


def with_engine(pool: Pool, engine: str) -> Pool:
    """The pool with this engine, if it runs an image and names none itself."""
    image = pool.task.image
    if not engine or pool.runtime or image == HOST_IMAGE or needs_apptainer(image):
        return pool
    return replace(pool, runtime=engine)


def check_runtimes(spec: CustomJobSpec, offer: Offer = NOTHING_KNOWN) -> None:
    """Raises InvalidDocument with each field of the job that no runtime can execute in this location."""
    complaints = Complaints()
    for number, pool in enumerate(spec.pools):
        if pool is not None:
            _check(pool, offer, f"job_spec.worker_pool_specs[{number}]", complaints)
    complaints.raise_if_any()


def runtime_of(pool: Pool) -> str:
    """The runtime that executes a pool which was not refused."""
    if pool.task.image != HOST_IMAGE:
        return pool.runtime or _usual_engine(pool)
    return PYTHON if isinstance(pool.task, PythonPackage) else pool.runtime or PROCESS


def _usual_engine(pool: Pool) -> str:
    return APPTAINER if needs_apptainer(pool.task.image) else PODMAN


def engine_of(pool: Pool) -> tuple[str, ...]:
    """The engine that a pool's hosts must have; empty if its replicas run in no container."""
    runtime = runtime_of(pool)
    return (runtime,) if runtime in ENGINES else ()


def engines_of(spec: CustomJobSpec) -> frozenset[str]:
    return frozenset(engine for pool in spec.pools if pool is not None for engine in engine_of(pool))


def runtime_order(pool: Pool) -> dict[str, object]:
    """What a start order says about the runtime; empty for a program of the host (agents/README.md).

    As in a Kubernetes container, `command` replaces the image's ENTRYPOINT, and `args` its CMD.
    """
    runtime = runtime_of(pool)
    if runtime not in ENGINES:
        return {}
    task = pool.task
    entrypoint = list(task.command) or None
    order: dict[str, object] = {
        "kind": runtime,
        "image": task.image,
        "entrypoint": entrypoint,
        "args": list(task.args),
    }
    if pool.shm_mb:
        order["shm_mb"] = pool.shm_mb
    # As without a container, a program that is brought starts in the work directory; else the image decides.
    is_brought = pool.code is not None or isinstance(task, PythonPackage)
    return {**order, "workdir": True} if is_brought else order


def _check(pool: Pool, offer: Offer, path: str, complaints: Complaints) -> None:
    if pool.shm_mb and runtime_of(pool) not in (PODMAN, DOCKER):
        complaints.add(
            f"{path}.trainyard.shm_mb",
            said(
                "is for containers of podman and Docker. Apptainer and programs of the host have the host's /dev/shm, "
                "which its admin sizes: leave it out."
            ),
        )
    if pool.task.image != HOST_IMAGE:
        _check_container(pool, offer, path, complaints)
    elif isinstance(pool.task, PythonPackage):
        _check_package(pool, path, complaints)
    elif pool.runtime not in ("", PROCESS):
        complaints.add(
            f"{path}.trainyard.runtime",
            said('needs an image: name one as image_uri, or leave the runtime out, or say "process".'),
        )


def _check_package(pool: Pool, path: str, complaints: Complaints) -> None:
    if pool.runtime not in ("", PYTHON):
        complaints.add(
            f"{path}.trainyard.runtime",
            said('does not fit: leave it out, or say "{runtime}".', runtime=PYTHON),
        )


def _check_container(pool: Pool, offer: Offer, path: str, complaints: Complaints) -> None:
    engine = pool.runtime or _usual_engine(pool)
    if engine in (PODMAN, DOCKER) and needs_apptainer(pool.task.image):
        complaints.add(
            f"{path}.trainyard.runtime",
            said('runs no SIF files: leave it out, or say "apptainer".'),
        )
    elif engine not in ENGINES:
        complaints.add(
            f"{path}.trainyard.runtime",
            said('runs no images: leave it out, or say "podman", "docker" or "apptainer".'),
        )
    elif (without := offer.hosts_without(engine)) and len(without) == len(offer.engines):
        complaints.add(
            f"{path}.{pool.task.field}.{pool.task.image_field}",
            said(
                "names an image, but no host of the location can run it: {hosts}. Install {engine} there and "
                'check the hosts, choose another location, or use "host" and a command.',
                hosts=list_text(without, MAX_NAMED),
                engine=engine,
            ),
        )
