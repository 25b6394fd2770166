"""Which trainers take part in a reduction: agreed on through the store of torch's default group.

Only a default group that spans all replicas of workerpool0 and workerpool1 goes through the reducers. Each replica
is one trainer there. Where it has several processes, each of them exchanges a part (inside.py).
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import timedelta
from typing import Any, Dict, List, NamedTuple

from agents.runner.reduction.wire import PATIENCE_S

REPLICA, REPLICAS = "TRAINYARD_REDUCTION_REPLICA", "TRAINYARD_REDUCTION_REPLICAS"
# How long the first rank waits for the others, and they for what it has found. All of them come here at the same
# moment.
GATHER_S, ANSWER_S = 60.0, 300.0
PREFIX = "trainyard/reduction"


class Plan(NamedTuple):
    """`session` is empty where the group does without reducers; `why` says why. `replicas`: of each rank, its
    replica. `patience_s`: how long trainers wait for one that sends nothing."""

    session: str
    why: str
    replicas: List[int]
    patience_s: int = PATIENCE_S

    def ranks_of(self, replica: int) -> List[int]:
        return [rank for rank, each in enumerate(self.replicas) if each == replica]

    @property
    def parts(self) -> int:
        """How many processes of each replica exchange: as many as the smallest replica has."""
        return min(map(self.replicas.count, set(self.replicas)))

    def session_of(self, part: int) -> bytes:
        """Those that exchange the same part are a session of their own at the reducers."""
        return hashlib.sha256(bytes.fromhex(self.session) + bytes([part & 255, part >> 8])).digest()[:16]

    @property
    def has_several(self) -> bool:
        """Whether any replica has several processes."""
        return len(set(self.replicas)) < len(self.replicas)


def agree(
    store: Any,
    rank: int,
    world: int,
    number: int,
    environment: Any = os.environ,
    patience_s: int = PATIENCE_S,
) -> Plan:
    """The same plan on all ranks: with the patience of the first. `number`: which default group of this process it
    is."""
    # A restart by torchrun may meet the store of before.
    place = "%s/%s/%d" % (PREFIX, environment.get("TORCHELASTIC_RESTART_COUNT", "0"), number)
    store.set("%s/%d" % (place, rank), environment.get(REPLICA, ""))
    if rank == 0:
        plan = _plan(store, place, world, environment)._replace(patience_s=patience_s)
        store.set(place, json.dumps(plan._asdict()))
    elif not _waits(store, place, ANSWER_S):
        return Plan("", "the first process of the group knows nothing of reducers", [])
    found: Dict[str, Any] = json.loads(store.get(place).decode())
    return Plan(**found)


def _plan(store: Any, place: str, world: int, environment: Any) -> Plan:
    names = ["%s/%d" % (place, rank) for rank in range(world)]
    if not _waits(store, names, GATHER_S):
        return Plan("", "not all processes of the group know of reducers (python -I and -S hide them)", [])
    found = [store.get(name).decode() for name in names]
    wanted = set(range(int(environment.get(REPLICAS, "0"))))
    replicas = [int(each) if each.isdigit() else -1 for each in found]
    if set(replicas) != wanted:
        return Plan(
            "", "the group spans %d of the %d replicas that train" % (len(set(replicas)), len(wanted)), []
        )
    return Plan(os.urandom(16).hex(), "", replicas)


def _waits(store: Any, names: Any, seconds: float) -> bool:
    try:
        store.wait([names] if isinstance(names, str) else names, timedelta(seconds=seconds))
        return True
    except RuntimeError:
        return False
