"""What the training code is told about its cluster: the environment of one replica.

Every replica gets CLUSTER_SPEC and the CLOUD_ML_* variables; a job with several replicas also gets TF_CONFIG and
torch's rendezvous variables. Addresses are real ones, the host's address and the port that the replica's run claimed:
without a network namespace per replica there are no names to bring along, and a port is what two replicas on one host
differ in.

The user's own `env` comes on top of all of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from jobs.rules.customjob import CustomJobSpec, to_document

# Linux takes at most 128 KiB for one variable. Rather than fail the start, the job's own description is left out then:
# the part that programs read is the cluster.
MOST_VARIABLE_BYTES = 100 * 1024

_TF_TASKS = ("chief", "worker", "ps", "evaluator")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one replica stands in its job."""

    name: str
    pool: int
    index: int
    rank: int


def environment(
    spec: CustomJobSpec,
    *,
    job_id: str,
    project: str,
    location: str,
    replica: str,
    addresses: Mapping[str, str],
    host_name: str,
) -> dict[str, str]:
    """The variables of one replica, the user's own included. `addresses` is "address:port" by replica name."""
    places = [_Place(name, pool, index, rank) for rank, (name, pool, index, _) in enumerate(spec.replicas())]
    place = next(place for place in places if place.name == replica)
    pools: dict[int, list[str]] = {}
    for each in places:
        pools.setdefault(each.pool, []).append(addresses[each.name])
    variables = {
        "CLOUD_ML_PROJECT_ID": project,
        "CLOUD_ML_JOB_ID": job_id,
        "CLOUD_ML_REGION": location,
        "HOSTNAME": host_name,
        **_directories(spec.base_output_directory),
        **_cluster(spec, place, pools, job_id),
        **(_rendezvous(places, place, addresses) if len(places) > 1 else {}),
    }
    pool = spec.pools[place.pool]
    return variables | dict(pool.container.env if pool else ())


def _cluster(
    spec: CustomJobSpec, place: _Place, pools: Mapping[int, list[str]], job_id: str
) -> dict[str, str]:
    job = to_document(spec)
    cluster_spec = {
        "cluster": {f"workerpool{pool}": hosts for pool, hosts in pools.items()},
        "environment": "cloud",
        "task": {"type": f"workerpool{place.pool}", "index": place.index},
    }
    variables = {"CLUSTER_SPEC": _with_job(cluster_spec, job)}
    if sum(map(len, pools.values())) > 1:
        tf_config = {
            # The evaluator is no part of TensorFlow's cluster: it may only be a task.
            "cluster": {_TF_TASKS[pool]: hosts for pool, hosts in pools.items() if pool != 3},
            "environment": "cloud",
            "task": {"type": _TF_TASKS[place.pool], "index": place.index, "cloud": job_id},
        }
        variables["TF_CONFIG"] = _with_job(tf_config, job)
    return variables


def _with_job(document: Mapping[str, object], job: Mapping[str, object]) -> str:
    whole = json.dumps({**document, "job": job}, separators=(",", ":"))
    return whole if len(whole) <= MOST_VARIABLE_BYTES else json.dumps(document, separators=(",", ":"))


def _rendezvous(places: list[_Place], place: _Place, addresses: Mapping[str, str]) -> dict[str, str]:
    """For torch.distributed with one process per replica, and for a bare `torchrun train.py` (PET_*)."""
    address, _, port = addresses[places[0].name].rpartition(":")
    master = address.strip("[]")
    return {
        "MASTER_ADDR": master,
        "MASTER_PORT": port,
        "WORLD_SIZE": str(len(places)),
        "RANK": str(place.rank),
        "PET_NNODES": str(len(places)),
        "PET_NODE_RANK": str(place.rank),
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": port,
    }


def _directories(base: str) -> dict[str, str]:
    if not base:
        return {}
    base = base.rstrip("/")
    return {
        "AIP_MODEL_DIR": f"{base}/model/",
        "AIP_CHECKPOINT_DIR": f"{base}/checkpoints/",
        "AIP_TENSORBOARD_LOG_DIR": f"{base}/logs/",
    }
