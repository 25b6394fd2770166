"""What torch's DistributedDataParallel learns: its gradients of the default group go through the reducers.

Nothing else does. A hook that the program registers itself wins, whenever it is registered. Models over another
group, and numbers that reducers do not sum, are reduced as always.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from datetime import timedelta
from typing import Any, Callable, Dict, List, Tuple

import torch
import torch.distributed as dist

from agents.runner.reduction.ending import abort
from agents.runner.reduction.exchange import Exchange, mean_by_group
from agents.runner.reduction.group import REPLICA, Plan, agree
from agents.runner.reduction.link import BEYOND_S, Link
from agents.runner.reduction.wire import PATIENCE_S, SECRET_VARIABLE, Trainer, split_addresses

ADDRESSES, WIRE = "TRAINYARD_REDUCERS", "TRAINYARD_REDUCTION_WIRE"

MAX_PATIENCE_S = (1 << 32) - 1


class Model:
    """One DistributedDataParallel. `user`: the program's own hook, with its state. `shadows`: it has no inputs
    left, and takes part in the steps of the others (`join`)."""

    def __init__(self, ddp: Any, reduction: Reduction, stream: int) -> None:
        self._ddp, self.reduction, self.stream = weakref.ref(ddp), reduction, stream
        self.user: Tuple[Any, Any] | None = None
        self.registered = self.shadows = False
        self.number = 0

    @property
    def divides_by_all(self) -> bool:
        """Whether gradients are divided by all trainers, also by those without inputs: the option of `join`."""
        return bool(getattr(self._ddp(), "_divide_by_initial_world_size", True))


class Reduction:
    """The reduction of one default group. Connected at its first bucket."""

    def __init__(self, plan: Plan, rank: int, group: Any) -> None:
        self.plan, self.rank, self.group = plan, rank, group
        self.models = 0
        self._lock = threading.Lock()
        self._exchange: Exchange | None = None
        own = plan.replicas[rank]
        self.local: Any = None
        if plan.has_several:
            waits = timedelta(seconds=plan.patience_s + BEYOND_S)  # the first of the replica waits for others
            groups = [dist.new_group(plan.ranks_of(each), waits) for each in range(max(plan.replicas) + 1)]
            self.local = groups[own]
        # Which part of each bucket this process exchanges, if any.
        self.part = plan.ranks_of(own).index(rank)

    def exchange(self) -> Exchange:
        with self._lock:
            if self._exchange is None:
                self._exchange = Exchange(self._link(), self.local, self.rank, self.plan)
            return self._exchange

    def _link(self) -> Link | None:
        if self.part >= self.plan.parts:
            return None
        addresses = split_addresses(os.environ[ADDRESSES])
        trainer = Trainer(
            self.plan.replicas[self.rank],
            max(self.plan.replicas) + 1,
            self.plan.session_of(self.part),
            self.plan.patience_s,
        )
        secret = bytes.fromhex(os.environ[SECRET_VARIABLE])
        # The page of the job has one curve for a replica: the first process speaks for those that do as much.
        link = Link(addresses, trainer, secret, abort, speaks_for=0 if self.part else self.plan.parts)
        atexit.register(link.leave)
        if self.rank == 0:
            _say(
                "gradients go through %d reducers, %s on the wire"
                % (len(addresses), os.environ.get(WIRE) or "as they are")
            )
        return link

    def end(self) -> None:
        if self._exchange is not None and self._exchange.link is not None:
            self._exchange.link.leave()


_models: weakref.WeakKeyDictionary[Any, Model] = weakref.WeakKeyDictionary()
# What has a hook before it has a Model: torch registers one itself, while it makes a DistributedDataParallel with
# mixed precision or with an optimizer in backward.
_hooked: weakref.WeakSet[Any] = weakref.WeakSet()
# The reduction of the newest default group, and how many there were.
_newest: Dict[str, Any] = {"group": None, "reduction": None, "count": 0}


def _say(text: str) -> None:
    print("reduction: %s" % text, file=sys.stderr, flush=True)


def reduction_of(group: Any) -> Reduction | None:
    """The reduction of this default group; None where it does without. All ranks come here at the same moment."""
    if _newest["group"] is group:
        found: Reduction | None = _newest["reduction"]
        return found
    if _newest["reduction"] is not None:
        _newest["reduction"].end()
    rank, world = dist.get_rank(), dist.get_world_size()
    try:
        store = dist.distributed_c10d._get_default_store()
    except Exception:
        store = None
    if store is None:
        plan = Plan("", "the default group has no store", [])
    else:
        plan = agree(store, rank, world, _newest["count"], patience_s=patience_of(group))
    _newest["count"] += 1
    _newest["group"] = group
    if not plan.session and rank == 0:
        _say("gradients go without reducers: %s" % plan.why)
    _newest["reduction"] = Reduction(plan, rank, group) if plan.session else None
    return reduction_of(group)


def patience_of(group: Any) -> int:
    """The timeout of this group in seconds: what the program gave to init_process_group, or torch's own."""
    places: List[Callable[[], Any]] = [
        lambda: group._get_backend(torch.device("cuda")),
        lambda: group._get_backend(torch.device("cpu")),
        lambda: group,
    ]
    for place in places:
        with contextlib.suppress(Exception):  # each version of torch has it elsewhere
            return int(min(max(1, place().options._timeout.total_seconds()), MAX_PATIENCE_S))
    return PATIENCE_S


def hook(model: Model, bucket: Any) -> Any:
    """The communication hook: a future of the mean of this bucket."""
    if model.user is not None:
        return model.user[1](model.user[0], bucket)
    return model.reduction.exchange().reduce(model, bucket.buffer())


hook.__annotations__.clear()  # torch compares them with types of its own, and these are texts


def as_always(_: object, bucket: Any) -> Any:
    return mean_by_group(bucket.buffer())


def in_halves(_: object, bucket: Any) -> Any:
    tensor = bucket.buffer()
    half = mean_by_group(tensor.to(torch.float16))
    return half.then(lambda result: tensor.copy_(result.value()))


def patch(ddp: Any) -> None:
    """Teach the class. Nothing changes for a program without a group over all replicas."""
    if not os.environ.get(REPLICA):
        return
    init, forward, join_hook = ddp.__init__, ddp.forward, ddp.join_hook
    register, builtin = ddp.register_comm_hook, ddp._register_builtin_comm_hook
    shadow = ddp._match_all_reduce_for_bwd_pass

    def own_init(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        _prepare(self)

    def own_forward(self: Any, *args: Any, **options: Any) -> Any:
        _register_once(self, register)
        return forward(self, *args, **options)

    def own_join_hook(self: Any, *args: Any, **options: Any) -> Any:
        _register_once(self, register)
        return join_hook(self, *args, **options)

    def own_register(self: Any, state: Any, hook: Any) -> None:
        model = _models.get(self)
        if model is None or not model.registered or model.user is not None:
            register(self, state, hook)
        else:
            self._check_comm_hook(hook)
        if model is not None:
            model.user = (state, hook)
        else:
            _hooked.add(self)

    def own_builtin(self: Any, kind: Any) -> None:
        model = _models.get(self)
        if model is not None and model.registered:
            # torch takes one hook only, and that is ours by now: the same in Python.
            half = kind == dist.BuiltinCommHookType.FP16_COMPRESS
            model.user = (half, in_halves if half else as_always)
            return
        builtin(self, kind)
        if model is not None:
            model.user = (None, None)
        else:
            _hooked.add(self)

    def own_shadow(self: Any) -> Any:
        model = _models.get(self)
        if model is None:
            return shadow(self)
        model.shadows = True
        try:
            return shadow(self)
        finally:
            model.shadows = False

    ddp.__init__, ddp.forward, ddp.join_hook = own_init, own_forward, own_join_hook
    ddp.register_comm_hook, ddp._register_builtin_comm_hook = own_register, own_builtin
    ddp._match_all_reduce_for_bwd_pass = own_shadow


def _prepare(ddp: Any) -> None:
    if ddp in _hooked or not dist.is_initialized():
        return
    group = dist.distributed_c10d._get_default_group()
    if ddp.process_group is not group or dist.get_world_size() < 2:
        return
    reduction = reduction_of(group)
    if reduction is not None:
        _models[ddp] = Model(ddp, reduction, reduction.models)
        reduction.models += 1


def _register_once(ddp: Any, register: Any) -> None:
    model = _models.get(ddp)
    if model is not None and not model.registered and model.user is None:
        register(ddp, model, hook)
        model.registered = True
