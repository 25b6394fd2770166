"""How the programs of a job with several trainers are started, as far as its commands show it.

Accelerate, and the Trainer of transformers, take a replica for the only one unless a launcher such as torchrun started
their process. Then each replica trains a model of its own, and the job succeeds.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from agents.infra.texts import said
from jobs.rules.spec.cluster_variables import TRAINER_POOLS
from jobs.rules.spec.custom_job import CustomJobSpec

_LAUNCHER = re.compile(
    r"\b(torchrun|torch\.distributed\.(run|launch)|accelerate[\s-]+launch|accelerate\.commands\.launch|deepspeed"
    r"|mpirun|mpiexec|horovodrun|composer|colossalai|srun)\b"
)
_PYTHON = re.compile(r"(^|[\s/;&|])python[\d.]*(\s|$)|\.py(\s|$|[\"'])")
# Programs that say in the command that they need no launcher.
_OTHERS = re.compile(r"\b(tensorflow|tf\.distribute|TF_CONFIG|jax|flax|init_process_group|num_nodes)\b")
# Programs that train, whatever starts them.
_FRAMEWORK = re.compile(
    r"\b(torch\w*|accelerate|transformers|deepspeed|lightning|jax|flax|tensorflow|keras|horovod\w*|mpirun|mpiexec"
    r"|colossalai|composer|megatron)\b"
)
# Their programs run where the host's runner does not see them: in a container's network, or on other nodes.
_ELSEWHERE = re.compile(r"\b(docker|podman|nerdctl|enroot|srun|ssh|pdsh|ray|dask)\b")
_INTERPRETER = re.compile(r"python[\d.]*")
_MAX_LINE = 160


def separate_models(spec: CustomJobSpec) -> Iterator[str]:
    """The programs may train a model each, and not one together."""
    count, text = _trainers(spec)
    if count < 2 or not _PYTHON.search(text) or _LAUNCHER.search(text) or _OTHERS.search(text):
        return
    yield said(
        "Each of the {count} replicas starts its program without a launcher. Accelerate and the Trainer of "
        "transformers then train {count} separate models, and the job succeeds all the same. To train one model, "
        "start it so; no option is needed: {command} . Programs that connect by themselves need no launcher: "
        "torch.distributed.init_process_group, Lightning with num_nodes, TensorFlow's strategies, JAX.",
        count=count,
        command=_line(spec),
    )


def may_train_together(spec: CustomJobSpec, on_gpus: bool) -> bool:
    """Whether it is to be looked whether the replicas of workerpool0 and workerpool1 connect to each other: there are
    several, they have GPUs or name a framework, and their programs can be seen on the hosts."""
    count, text = _trainers(spec)
    return count > 1 and (on_gpus or bool(_FRAMEWORK.search(text))) and not _ELSEWHERE.search(text)


def never_connected(spec: CustomJobSpec) -> str:
    """What people read when the replicas have not connected to each other."""
    count, _ = _trainers(spec)
    return said(
        "The {count} replicas of workerpool0 and workerpool1 have never connected to each other. If they were to "
        "train one model together, each trains its own now, and the job succeeds all the same. Start them so; no "
        "option is needed: {command} . If each of them works alone, nothing is wrong.",
        count=count,
        command=_line(spec),
    )


def restarts_alone(spec: CustomJobSpec) -> Iterator[str]:
    """A replica that is restarted alone cannot join the others again."""
    count, text = _trainers(spec)
    if count < 2 or spec.restart_job_on_worker_restart or spec.disable_retries:
        return
    if _LAUNCHER.search(text) or (_PYTHON.search(text) and not re.search(r"\btensorflow|TF_CONFIG\b", text)):
        yield said(
            "If one replica is lost, it is started again alone. The processes of torch, JAX, DeepSpeed and MPI cannot "
            "join again one by one: the others fail or hang. Switch on “Restart all replicas when one restarts” "
            "(restartJobOnWorkerRestart), and all are restarted together."
        )


def _trainers(spec: CustomJobSpec) -> tuple[int, str]:
    """How many replicas train together, and their commands as one text."""
    pools = [pool for number, pool in enumerate(spec.pools) if pool is not None and number in TRAINER_POOLS]
    commands = dict.fromkeys(" ".join(pool.task.argv) for pool in pools)
    return sum(pool.replica_count for pool in pools), "\n".join(commands)


def _line(spec: CustomJobSpec) -> str:
    """The primary's command, started by torchrun of the same Python."""
    primary = spec.pools[0]
    words = list(primary.task.argv) if primary else []
    if len(words) < 2 or not _INTERPRETER.fullmatch(words[0].rpartition("/")[2]) or "-c" in words[:4]:
        return "python3 -m torch.distributed.run train.py"
    options = 1
    while options < len(words) - 1 and words[options].startswith("-") and words[options] != "-m":
        options += 1
    line = shlex.join([*words[:options], "-m", "torch.distributed.run", *words[options:]])
    return line if len(line) <= _MAX_LINE else f"{line[: _MAX_LINE - 1]}…"
