"""A bucket's way through the reducers, and the future of its mean.

Of a replica with one process, buckets on the CPU are sent as they lie in memory. Buckets on a GPU, and those of a
replica with several processes, go through a thread, in the order in which they came.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from typing import Any, Callable, Tuple

import torch
import torch.distributed as dist

from agents.runner.reduction.group import Plan
from agents.runner.reduction.inside import Inside
from agents.runner.reduction.link import SETTLE_S, Link
from agents.runner.reduction.staging import Cuda, Staging
from agents.runner.reduction.way import Job, ReductionFailed
from agents.runner.reduction.wire import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, ITEM, slices

WIRE, BF16 = "TRAINYARD_REDUCTION_WIRE", "bf16"
KINDS = {
    torch.float32: FLOAT32,
    torch.float16: FLOAT16,
    torch.bfloat16: BFLOAT16,
    torch.float64: FLOAT64,
}


class Exchange:
    """`link` is None in the processes of a replica for which others exchange; `local` is the group of all that it has,
    if there are several."""

    def __init__(self, link: Link | None, local: Any, rank: int, plan: Plan, cuda: Any = None) -> None:
        self.link, self._local = link, local
        self._reducers = len(link.ways) if link is not None else 0
        self._narrow = os.environ.get(WIRE) == BF16
        self._staging = Staging(cuda or Cuda())
        self._inside = Inside(local, rank, plan, self._staging)
        self._owner = os.getpid()
        self._tasks: queue.Queue[Tuple[Callable[[], None], Any]] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def reduce(self, model: Any, bucket: Any) -> Any:
        """A future of the mean over all trainers, in the place of the bucket."""
        tensor = bucket.detach()
        if tensor.is_sparse or tensor.dtype not in KINDS or tensor.device.type not in ("cpu", "cuda"):
            return mean_by_group(tensor)
        number, model.number = model.number, model.number + 1
        on_gpu = tensor.device.type == "cuda"
        result = torch.futures.Future(devices=[tensor.device]) if on_gpu else torch.futures.Future()
        empty, by_senders = model.shadows, not model.divides_by_all
        if not on_gpu and self._local is None:
            self._send(model.stream, number, tensor, empty, by_senders, result)
        else:
            ready = self._staging.mark(tensor.device) if on_gpu else None
            if self._local is None:
                self._later(
                    lambda: self._send_from_gpu(
                        model.stream, number, tensor, ready, empty, by_senders, result
                    ),
                    result,
                )
            else:
                self._later(
                    lambda: self._reduce_inside_first(
                        model.stream, number, tensor, ready, empty, by_senders, result
                    ),
                    result,
                )
        return result.then(_checked)

    # -- a replica with one process --

    def _kind(self, dtype: Any) -> Any:
        return torch.bfloat16 if self._narrow and dtype == torch.float32 else dtype

    def _send(
        self, stream: int, number: int, tensor: Any, empty: bool, by_senders: bool, result: Any
    ) -> None:
        kind = self._kind(tensor.dtype)
        small = tensor if tensor.dtype == kind else tensor.to(kind)

        def done(error: Exception | None) -> None:
            if error is None and small is not tensor:
                tensor.copy_(small)
            result.set_result(error or tensor)

        self._give(stream, number, small, empty, by_senders, done)

    def _send_from_gpu(
        self, stream: int, number: int, tensor: Any, ready: Any, empty: bool, by_senders: bool, result: Any
    ) -> None:
        host, small = self._staging.take(tensor, ready, self._kind(tensor.dtype))

        def done(error: Exception | None) -> None:
            if error is not None:
                result.set_result(error)
                return
            with self._staging.within(tensor.device):
                self._staging.give_back(tensor, host, small)
                result.set_result(tensor)

        self._give(stream, number, host, empty, by_senders, done)

    def _give(
        self,
        stream: int,
        number: int,
        tensor: Any,
        empty: bool,
        by_senders: bool,
        done: Callable[[Exception | None], None],
    ) -> None:
        assert self.link is not None
        kind = KINDS[tensor.dtype]
        views = [
            view_of(tensor)[begin:end] for begin, end in slices(tensor.numel(), ITEM[kind], self._reducers)
        ]
        self.link.give(Job(stream, number, kind, views, done, empty, by_senders))

    # -- a replica with several processes --

    def _reduce_inside_first(
        self, stream: int, number: int, tensor: Any, ready: Any, empty: bool, by_senders: bool, result: Any
    ) -> None:
        # A count of senders has to stay exact.
        wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        kind = wide if by_senders else self._kind(wide)

        def send(part: Any, done: Callable[[Exception | None], None]) -> None:
            self._give(stream, number, part, False, False, done)

        error = self._inside.mean(tensor, ready, empty, by_senders, kind, send)
        if error is not None:
            self._settle()
        if ready is None:
            result.set_result(error or tensor)
            return
        with self._staging.within(tensor.device):
            result.set_result(error or tensor)

    # -- the thread --

    def _later(self, task: Callable[[], None], result: Any) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="trainyard-exchange", daemon=True)
                self._thread.start()
        self._tasks.put((task, result))

    def _run(self) -> None:
        while True:
            task, result = self._tasks.get()
            try:
                task()
            except (
                Exception
            ) as problem:  # no memory on the GPU, a lost neighbour: the program waits for this future
                self._settle()
                with contextlib.suppress(Exception):
                    result.set_result(ReductionFailed("a bucket could not be sent: %r" % problem))
            del task, result  # what they hold is of the bucket that is over

    def _settle(self) -> None:
        """A process of this replica may be gone because it has lost a reducer. That runs the whole job again; an error
        of the program, which could come first, would end the job."""
        if self.link is not None:
            self.link.settle()
        else:
            # A process that exchanges ends the first process of the replica meanwhile.
            time.sleep(2 * SETTLE_S)


def view_of(tensor: Any) -> memoryview:
    """The bytes of a tensor on the CPU, in its own memory. numpy has no bfloat16."""
    plain = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
    return memoryview(plain.numpy()).cast("B")


def _checked(result: Any) -> Any:
    found = result.value()
    if isinstance(found, Exception):
        raise found
    return found


def mean_by_group(tensor: Any) -> Any:
    """A future of the mean by the default group itself, for what reducers do not sum."""
    tensor.div_(dist.get_world_size())

    def mean(result: Any) -> Any:
        found = result.value()[0]
        return tensor if tensor.is_complex() else found  # NCCL sums complex numbers as pairs of others

    return dist.all_reduce(tensor, async_op=True).get_future().then(mean)
