"""A replica with several processes: sums inside it first, so that each of its GPUs sends its share and not all.

A bucket is cut into parts, one for each process that exchanges. Process k gets the sum of part k over the processes
of the replica, exchanges it with the reducers, and gives the mean to all others. So the network of the host carries
the gradients once, and no process is waited for alone. These are the steps of a reduce-scatter and an all-gather, by
collectives that every backend has: gloo knows no reduce-scatter in most versions.

Numbers of 16 bits are summed in float32. On a GPU all of it is on our stream.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable, List

import torch
import torch.distributed as dist

from agents.runner.reduction.group import Plan
from agents.runner.reduction.way import ReductionFailed

# The last number of each part: how many processes had inputs, or that it could not be exchanged.
FAILED = -1.0
# Send this part of a bucket, and call back: (part in host memory, callback).
Send = Callable[[Any, Callable[[Any], None]], None]


class Inside:
    """`group`: that of the processes of this replica. `staging`: copies between a GPU and the host."""

    def __init__(self, group: Any, rank: int, plan: Plan, staging: Any) -> None:
        self._group, self._staging = group, staging
        self._world, self._replicas = len(plan.replicas), len(set(plan.replicas))
        # Of each part, the rank that exchanges it.
        self._ranks = plan.ranks_of(plan.replicas[rank])[: plan.parts]
        self._part = self._ranks.index(rank) if rank in self._ranks else -1

    def mean(self, tensor: Any, ready: Any, empty: bool, by_senders: bool, kind: Any, send: Send) -> Any:
        """The mean over all processes of all replicas, in the place of `tensor`; or the error why there is none.

        `ready`: on a GPU, the event before which the bucket is not whole. `kind`: of the numbers that travel.
        """
        on_gpu = ready is not None
        with self._staging.begin(tensor, ready) if on_gpu else contextlib.nullcontext():
            parts = self._summed(tensor, empty)
            error = None
            if self._part >= 0:
                error = self._exchange(parts[self._part], on_gpu, kind, send)
            for rank, part in zip(self._ranks, parts):  # noqa: B905
                dist.broadcast(part, rank, group=self._group)
            counts = [float(part[-1]) for part in parts]
            if min(counts) < -0.5:
                return error or ReductionFailed("another process of this replica says why")
            # Reducers have divided by the number of replicas.
            divisor = max(1, round(counts[0] * self._replicas)) if by_senders else self._world
            scale = self._replicas / divisor
            for piece, part in zip(_pieces(tensor, len(parts)), parts):  # noqa: B905
                piece.copy_(part[:-1].mul_(scale))
        return None

    def _summed(self, tensor: Any, empty: bool) -> List[Any]:
        """Of each part its sum, where this process exchanges it; of the others what has come of the sum on its way."""
        wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        parts = []
        for rank, piece in zip(self._ranks, _pieces(tensor, len(self._ranks))):  # noqa: B905
            part = piece.new_empty(piece.numel() + 1, dtype=wide)
            part[:-1].copy_(piece)
            part[-1] = 0.0 if empty else 1.0
            dist.reduce(part, rank, group=self._group)
            parts.append(part)
        return parts

    def _exchange(self, part: Any, on_gpu: bool, kind: Any, send: Send) -> Any:
        """The mean over the replicas in the place of the part; or why there is none, which its last number then
        says."""
        over = threading.Event()
        ends: List[Any] = []

        def done(error: Any) -> None:
            ends.append(error)
            over.set()

        if on_gpu:
            host, small = self._staging.take(part, self._staging.made(part), kind)
        else:
            host = part if part.dtype == kind else part.to(kind)
        send(host, done)
        over.wait()
        if ends[0] is not None:
            part[-1] = FAILED
        elif on_gpu:
            self._staging.give_back(part, host, small)
        elif host is not part:
            part.copy_(host)
        return ends[0]


def _pieces(tensor: Any, count: int) -> List[Any]:
    """The tensor in so many pieces, one after the other, in its own memory. Some may be empty."""
    edges = [tensor.numel() * each // count for each in range(count + 1)]
    return [tensor[begin:end] for begin, end in zip(edges, edges[1:])]  # noqa: B905
