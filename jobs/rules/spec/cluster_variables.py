"""The environment variables that describe the cluster to the training code of one replica.

Every replica gets CLUSTER_SPEC and the CLOUD_ML_* variables; a job with several replicas also gets TF_CONFIG. The
trainers (workerpool0 and workerpool1) get the variables by which torch, Lightning, Accelerate and JAX find each other.
Parameter servers, evaluators and reducers take no part in that: they are not counted in WORLD_SIZE. Reducers are no
task of TensorFlow's either: they have no TF_CONFIG, and it does not name them.

An address is the real address of the host and the port that the replica's run claimed: a replica has no network
namespace, so it has no host name of its own, and two replicas on one host differ in their ports. The variables that
name a network interface come from the host (agents/runner/host/networks.py).

The user's own `env` overrides all of these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from jobs.rules.spec import reduction
from jobs.rules.spec.custom_job import CustomJobSpec, to_document

# Linux takes at most 128 KiB for one variable. Above this limit the description of the job is left out, so that the
# start does not fail: programs read the part about the cluster.
MAX_VARIABLE_BYTES = 100 * 1024

# What a replica gets from Trainyard and must not get from its job: its place in the cluster, and its GPUs
# (agents/runner/runs/held_resources.py). Network interfaces and processes for each node are left to people who know
# better.
SET_FOR_REPLICAS = frozenset(
    {
        "CLUSTER_SPEC",
        "TF_CONFIG",
        "CLOUD_ML_PROJECT_ID",
        "CLOUD_ML_JOB_ID",
        "CLOUD_ML_REGION",
        "CLOUD_ML_TRIAL_ID",
        "HOSTNAME",
        "MASTER_ADDR",
        "MASTER_PORT",
        "WORLD_SIZE",
        "RANK",
        "NODE_RANK",
        "PET_NNODES",
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
        "PET_RDZV_ENDPOINT",
        "PET_RDZV_ID",
        "PET_RDZV_CONF",
        "PET_LOCAL_ADDR",
        "JAX_COORDINATOR_ADDRESS",
        "JAX_NUM_PROCESSES",
        "JAX_PROCESS_ID",
        "CUDA_VISIBLE_DEVICES",
    }
)

_TF_TASKS = ("chief", "worker", "ps", "evaluator")
# The pools whose replicas train together, each with a rank.
TRAINER_POOLS = (0, 1)


@dataclass(frozen=True, slots=True)
class _ReplicaPosition:
    """The position of one replica in its job. `rank` is its number among the trainers; None for the others."""

    pool: int
    index: int
    rank: int | None
    address: str


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What all replicas of a job share, encoded once: each of a thousand replicas gets a thousand addresses."""

    places: Mapping[str, _ReplicaPosition]
    trainers: int
    pools: str
    tf_pools: str
    job: str
    primary: str
    reducers: tuple[str, ...]


def cluster_environment(
    spec: CustomJobSpec,
    *,
    job_id: str,
    project: str,
    location: str,
    replica: str,
    addresses: Mapping[str, str],
    host_name: str,
    gpus: int,
    trial: str = "",
) -> dict[str, str]:
    """The variables of one replica, the user's own included. `addresses`: "address:port" by replica name. `gpus`: how
    many GPUs this replica has. `trial`: the number of the trial that the job is, if it is one.
    """
    cluster = _cluster(spec, tuple(addresses.items()))
    place = cluster.places[replica]
    number = {"trial": trial} if trial else {}
    task = {"type": f"workerpool{place.pool}", "index": place.index, **number}
    variables = {
        "CLOUD_ML_PROJECT_ID": project,
        "CLOUD_ML_JOB_ID": job_id,
        "CLOUD_ML_REGION": location,
        "HOSTNAME": host_name,
        **({"CLOUD_ML_TRIAL_ID": trial} if trial else {}),
        **_directories(spec.base_output_directory),
        "CLUSTER_SPEC": _document(cluster.pools, task, cluster.job),
    }
    if len(cluster.places) > 1 and not (place.pool == reduction.POOL and cluster.reducers):
        task = {"type": _TF_TASKS[place.pool], "index": place.index, **number, "cloud": job_id}
        variables["TF_CONFIG"] = _document(cluster.tf_pools, task, cluster.job)
    if place.rank is not None:
        variables |= _rendezvous(cluster, place, place.rank, job_id)
        variables |= _processes(gpus)
    if cluster.reducers:
        variables |= _reduction(spec, cluster, place)
    pool = reduction.as_executed(spec).pools[place.pool]
    return variables | dict(pool.task.env if pool else ())


@lru_cache(maxsize=8)
def _cluster(spec: CustomJobSpec, addresses: tuple[tuple[str, str], ...]) -> _Cluster:
    address = dict(addresses)
    replicas = [(name, pool, index) for name, pool, index, _ in spec.replicas()]
    trainers = [name for name, pool, _ in replicas if pool in TRAINER_POOLS]
    rank = {name: number for number, name in enumerate(trainers)}
    pools: dict[int, list[str]] = {}
    for name, pool, _ in replicas:
        pools.setdefault(pool, []).append(address[name])
    has_reducers = reduction.reducers(spec) is not None
    apart = {3, reduction.POOL} if has_reducers else {3}
    return _Cluster(
        places={
            name: _ReplicaPosition(pool, index, rank.get(name), address[name])
            for name, pool, index in replicas
        },
        trainers=len(trainers),
        pools=_json({f"workerpool{pool}": hosts for pool, hosts in pools.items()}),
        # The evaluator is not part of TensorFlow's cluster: it may only be a task.
        tf_pools=_json({_TF_TASKS[pool]: hosts for pool, hosts in pools.items() if pool not in apart}),
        job=_json(to_document(spec)),
        primary=address[replicas[0][0]],
        reducers=tuple(pools.get(reduction.POOL, ())) if has_reducers else (),
    )


def _document(cluster: str, task: Mapping[str, object], job: str) -> str:
    whole = f'{{"cluster":{cluster},"environment":"cloud","task":{_json(task)},"job":{job}}}'
    if len(whole) <= MAX_VARIABLE_BYTES:
        return whole
    return f'{{"cluster":{cluster},"environment":"cloud","task":{_json(task)}}}'


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _rendezvous(cluster: _Cluster, place: _ReplicaPosition, rank: int, job_id: str) -> dict[str, str]:
    """For one process per replica (torch's `env://`, Lightning, JAX), and for a plain `torchrun train.py`.

    torchrun takes the default of each of its options from PET_<OPTION>. Its default rendezvous is the static one; with
    endpoint and id set, `--rdzv_backend=c10d` alone is enough for the dynamic one. Which node holds the dynamic one's
    store, and each node's own address, are said outright: torchrun would ask for the address of the host's own name,
    and on Debian and Ubuntu that is 127.0.1.1.
    """
    master, port = _split(cluster.primary)
    size = str(cluster.trainers)
    return {
        "MASTER_ADDR": master,
        "MASTER_PORT": port,
        "WORLD_SIZE": size,
        "RANK": str(rank),
        "NODE_RANK": str(rank),
        "PET_NNODES": size,
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": port,
        "PET_RDZV_ENDPOINT": cluster.primary,
        "PET_RDZV_ID": job_id,
        "PET_RDZV_CONF": f"is_host={'true' if rank == 0 else 'false'}",
        "PET_LOCAL_ADDR": _split(place.address)[0],
        "JAX_COORDINATOR_ADDRESS": cluster.primary,
        "JAX_NUM_PROCESSES": size,
        "JAX_PROCESS_ID": str(rank),
    }


def _reduction(spec: CustomJobSpec, cluster: _Cluster, place: _ReplicaPosition) -> dict[str, str]:
    """By which reducers and trainers find each other (agents/runner/reduction/). Their secret is added when the
    order is sent."""
    if place.pool == reduction.POOL:
        return {"TRAINYARD_REDUCTION_PORT": _split(place.address)[1]}
    if place.rank is None:
        return {}
    pool = reduction.reducers(spec)
    return {
        "TRAINYARD_REDUCERS": ",".join(cluster.reducers),
        "TRAINYARD_REDUCTION_REPLICA": str(place.rank),
        "TRAINYARD_REDUCTION_REPLICAS": str(cluster.trainers),
        **({"TRAINYARD_REDUCTION_WIRE": pool.wire} if pool and pool.wire else {}),
    }


def _split(address: str) -> tuple[str, str]:
    """(host, port), without the brackets of an IPv6 address."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), port


def _processes(gpus: int) -> dict[str, str]:
    """Let torchrun start one process for each GPU of the replica, if it has any."""
    return {"PET_NPROC_PER_NODE": str(gpus)} if gpus else {}


def model_directory(base: str) -> str:
    """Where a job leaves its model. `base`: its output directory."""
    return f"{base.rstrip('/')}/model/"


def _directories(base: str) -> dict[str, str]:
    if not base:
        return {}
    base = base.rstrip("/")
    return {
        "AIP_MODEL_DIR": model_directory(base),
        "AIP_CHECKPOINT_DIR": f"{base}/checkpoints/",
        "AIP_TENSORBOARD_LOG_DIR": f"{base}/logs/",
    }
