"""Advice about a job with Reduction Server: whether it can gain anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agents.infra.texts import said, said_of
from jobs.rules.list_text import list_text
from jobs.rules.spec import reduction
from jobs.rules.spec.cluster_variables import TRAINER_POOLS
from jobs.rules.spec.custom_job import CustomJobSpec, Machine, Pool
from jobs.rules.spec.machine_types import NO_TYPES, Types, needs

MAX_NAMED = 4
_OTHERS = re.compile(r"\b(tensorflow|tf\.distribute|TF_CONFIG|keras|jax|flax)\b")
# In the last part of an image's name, as in `training/tf-gpu.2-14.py310:latest`.
_OTHER_IMAGES = re.compile(r"(?:^|[-_.])(?:tf|tensorflow|keras|jax|flax)\d*(?:[-_.:@]|$)")
# What Google says of its own machines, in Gbit/s.
_PER_CPU, _MOST, _WITH_MANY_GPUS = 2.0, 32.0, 100.0
_MANY_GPUS = {"NVIDIA_TESLA_V100": 8, "NVIDIA_TESLA_T4": 4}


@dataclass(frozen=True, slots=True)
class Cards:
    """What is known of the network cards of the hosts that the job may use. `mbit`: the speeds, slowest first.
    `infiniband`: the hosts that have it."""

    mbit: tuple[int, ...] = ()
    infiniband: tuple[str, ...] = ()


NO_CARDS = Cards()


def hints(spec: CustomJobSpec, types: Types = NO_TYPES) -> Iterator[str]:
    """What is only good to know."""
    if reduction.reducers(spec) is None:
        return
    trainers = _trainers(spec)
    if not any(needs(pool.machine, types).gpus for pool in trainers):
        yield said(
            "Reduction Server is for workers with GPUs. Here they have none: gradients go through the reducers all the "
            "same, from the memory of the hosts."
        )
    if _count(trainers) <= 2:
        yield said(
            "Reduction Server gains nothing with {count} replicas that train: a ring of two moves as many bytes. It "
            "gains 1.5 times with 4 and 1.75 times with 8 replicas, at most 2 times.",
            count=_count(trainers),
        )


def warnings(spec: CustomJobSpec, cards: Cards = NO_CARDS) -> Iterator[str]:
    """What makes the job slower, or leaves the reducers idle."""
    pool = reduction.reducers(spec)
    if pool is None:
        return
    trainers = _trainers(spec)
    yield from _about_cards(cards)
    needed, offered = map(_bandwidth, (trainers, [pool]))
    if not (needed and offered) and len(set(cards.mbit)) == 1:
        needed, offered = (count * cards.mbit[0] / 1000 for count in (_count(trainers), pool.replica_count))
    if needed and offered:
        if offered < needed:
            yield said(
                "workerpool2 (replicas: {reducers}) has {offered} Gbit/s in all, and the {trainers} replicas that "
                "train {needed} Gbit/s: reducers slow them down unless they have as much. Give workerpool2 at "
                "least {least} replicas.",
                reducers=pool.replica_count,
                offered=f"{offered:g}",
                trainers=_count(trainers),
                needed=f"{needed:g}",
                least=-int(-needed // (offered / pool.replica_count)),
            )
    elif pool.replica_count < _count(trainers):
        yield said_of(
            pool.replica_count,
            "One reducer for {trainers} replicas that train: where all hosts have the same network cards, fewer "
            "reducers than trainers are slower than none. Give workerpool2 at least {trainers} replicas.",
            "{number} reducers for {trainers} replicas that train: where all hosts have the same network cards, "
            "fewer reducers than trainers are slower than none. Give workerpool2 at least {trainers} replicas.",
            trainers=_count(trainers),
        )
    if any(map(_is_not_torch, trainers)):
        yield said(
            "Nothing hooks into TensorFlow and JAX: they reduce gradients inside their own runtimes, and the reducers "
            "will be idle. Reduction Server speeds up torch's DistributedDataParallel only."
        )


def _about_cards(cards: Cards) -> Iterator[str]:
    if cards.infiniband:
        yield said(
            "There is InfiniBand on {hosts}. Over it NCCL is faster than through reducers: leave out workerpool2 if "
            "the replicas that train run there.",
            hosts=list_text(cards.infiniband, MAX_NAMED),
        )
    if len(set(cards.mbit)) > 1:
        yield said(
            "The network cards of the hosts of this location have from {least} to {most} Gbit/s. A reducer on a slow "
            "card slows down all that train: keep such hosts out, or give the reducers a machine type of their own.",
            least=f"{cards.mbit[0] / 1000:g}",
            most=f"{cards.mbit[-1] / 1000:g}",
        )


def _is_not_torch(pool: Pool) -> bool:
    task = pool.task
    return bool(_OTHERS.search(" ".join(task.argv)) or _OTHER_IMAGES.search(task.image.rpartition("/")[2]))


def _trainers(spec: CustomJobSpec) -> list[Pool]:
    return [pool for number, pool in enumerate(spec.pools) if pool is not None and number in TRAINER_POOLS]


def _count(pools: list[Pool]) -> int:
    return sum(pool.replica_count for pool in pools)


def _bandwidth(pools: list[Pool]) -> float:
    """What Google's machines of these pools have together; 0 where it is not known."""
    each = [(_of_machine(pool.machine), pool.replica_count) for pool in pools]
    return sum(gbits * count for gbits, count in each) if all(gbits for gbits, _ in each) else 0.0


def _of_machine(machine: Machine) -> float:
    if not machine.machine_type.startswith("n1-"):
        return 0.0
    if machine.accelerator_count >= _MANY_GPUS.get(machine.accelerator_type, 1 << 30):
        return _WITH_MANY_GPUS
    return min(_MOST, _PER_CPU * needs(machine).cpus)
