"""Gradients on a GPU, on their way to the network and back: through pinned memory, on a stream beside the program's.

A copy is read only after its event has come, and a buffer is filled again only after the copy out of it is done. So
several models, or several GPUs of one process, never see a copy that is half made.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Dict, Iterator, List, Tuple

import torch


class Cuda:
    """What is needed of torch.cuda. Tests put another one in its place."""

    def __init__(self) -> None:
        self._streams: Dict[Any, Any] = {}

    def mark(self, device: Any) -> Any:
        """An event that comes when all that the program has asked of this device so far is done."""
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        return event

    def stream(self, device: Any) -> Any:
        """Ours, of this device."""
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        return self._streams[device]

    def choose(self, device: Any) -> None:
        """Of this thread: NCCL looks at it."""
        torch.cuda.set_device(device)

    def within(self, device: Any) -> Any:
        """A context in which work is given to our stream of this device."""
        return torch.cuda.stream(self.stream(device))

    def wait(self, device: Any, event: Any) -> None:
        self.stream(device).wait_event(event)

    def record(self, device: Any) -> Any:
        event = torch.cuda.Event()
        event.record(self.stream(device))
        return event

    def copy(self, target: Any, source: Any) -> None:
        target.copy_(source, non_blocking=True)

    def pinned(self, like: Any) -> Any:
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)

    def keep(self, tensor: Any, device: Any) -> None:
        """Its memory is not given away before our stream is done with it."""
        tensor.record_stream(self.stream(device))


class Staging:
    """Host copies of buckets. `take` and `give_back` may be called by different threads."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._free: Dict[Tuple[Any, Any, int], List[Tuple[Any, Any]]] = {}
        self._lock = threading.Lock()

    def take(self, tensor: Any, ready: Any, kind: Any) -> Tuple[Any, Any]:
        """(the bucket in host memory, the same on the device in the kind of numbers that travel). `ready`: the event
        before which the bucket is not whole."""
        device = tensor.device
        with self._cuda.within(device):
            self._cuda.wait(device, ready)
            self._cuda.keep(tensor, device)
            small = tensor if tensor.dtype == kind else tensor.to(kind)
            host = self._buffer(small)
            self._cuda.copy(host, small)
            done = self._cuda.record(device)
        done.synchronize()
        return host, small

    def give_back(self, tensor: Any, host: Any, small: Any) -> None:
        """Write the host's copy into the bucket, still on our stream: the caller sets the future within it."""
        device = tensor.device
        self._cuda.copy(small, host)
        if small is not tensor:
            self._cuda.copy(tensor, small)
        done = self._cuda.record(device)
        with self._lock:
            self._free.setdefault(_key(small), []).append((host, done))

    def within(self, device: Any) -> Any:
        return self._cuda.within(device)

    def mark(self, device: Any) -> Any:
        return self._cuda.mark(device)

    @contextlib.contextmanager
    def begin(self, tensor: Any, ready: Any) -> Iterator[None]:
        """A context of our stream, in which the bucket is whole."""
        device = tensor.device
        self._cuda.choose(device)
        with self._cuda.within(device):
            self._cuda.wait(device, ready)
            self._cuda.keep(tensor, device)
            yield

    def made(self, tensor: Any) -> Any:
        """An event that comes when what our stream was asked for is done."""
        return self._cuda.record(tensor.device)

    def _buffer(self, small: Any) -> Any:
        with self._lock:
            free = self._free.get(_key(small))
            found = free.pop() if free else None
        if found is None:
            return self._cuda.pinned(small)
        host, done = found
        done.synchronize()
        return host


def _key(tensor: Any) -> Tuple[Any, Any, int]:
    return tensor.device, tensor.dtype, tensor.numel()
