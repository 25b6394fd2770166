"""What a job needs of hosts, as a text so short that ten thousand waiting jobs are read in one query.

The text is made once, when the job is submitted, and kept with the job. Jobs with equal requests have equal texts, so
the text is also the key under which the scheduler remembers its answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

from jobs.rules.scheduling.views import Gang, ReplicaRequest
from jobs.rules.spec.custom_job import CustomJobSpec, replica_name
from jobs.rules.spec.machine_types import NO_TYPES, Needs, Types, needs
from jobs.rules.spec.runtime_choice import engine_of

# So many CPUs count as one GPU for a job without GPUs.
CPUS_PER_GPU = 32.0


class JobRequest:
    """The replicas of a job, by pool and by what they need."""

    __slots__ = ("_gang", "engines", "gpus", "groups", "hosts_with", "kinds", "replicas", "sizes", "weight")

    def __init__(
        self, groups: tuple[tuple[int, int, Needs], ...], engines: frozenset[str] = frozenset()
    ) -> None:
        self.groups = groups
        # The container engines that its hosts must have.
        self.engines = engines
        sizes: dict[Needs, int] = {}
        gpus: dict[str, int] = {}
        for _, count, each in groups:
            sizes[each] = sizes.get(each, 0) + count
            if each.gpus:
                gpus[each.accelerator_type] = gpus.get(each.accelerator_type, 0) + count * each.gpus
        self.sizes: tuple[tuple[Needs, int], ...] = tuple(sizes.items())
        self.gpus: Mapping[str, int] = gpus
        self.kinds: tuple[str, ...] = tuple(sorted(gpus))
        # The same, and an empty kind if a replica has no GPUs: the key for `CapacityIndex.hosts_with`.
        self.hosts_with: tuple[str, ...] = tuple(
            sorted({each.accelerator_type if each.gpus else "" for each in sizes})
        )
        self.replicas = sum(count for _, count, _ in groups)
        # In GPUs: what the project is charged with while the job holds them.
        self.weight = float(sum(gpus.values())) or sum(
            count * each.cpus / CPUS_PER_GPU for _, count, each in groups
        )

        self._gang: Gang | None = None

    def replica_requests(self) -> tuple[ReplicaRequest, ...]:
        return self.gang.requests

    @property
    def gang(self) -> Gang:
        if self._gang is None:
            self._gang = Gang(
                [
                    ReplicaRequest(replica_name(pool, index), each)
                    for pool, count, each in self.groups
                    for index in range(count)
                ]
            )
        return self._gang


def encode_request(spec: CustomJobSpec, types: Types = NO_TYPES) -> str:
    groups = []
    for number, pool in enumerate(spec.pools):
        if pool is not None:
            each = needs(pool.machine, types)
            size = (each.cpus, each.memory_mb, each.accelerator_type, each.gpus)
            groups.append((number, pool.replica_count, *size, *engine_of(pool)))
    return json.dumps(groups, separators=(",", ":"))


@lru_cache(maxsize=8_192)
def decode_request(written: str) -> JobRequest:
    groups, engines = [], set[str]()
    for pool, count, cpus, memory_mb, kind, gpus, *engine in json.loads(written):
        groups.append((pool, count, Needs(cpus, memory_mb, kind, gpus)))
        engines.update(engine)
    return JobRequest(tuple(groups), frozenset(engines))
