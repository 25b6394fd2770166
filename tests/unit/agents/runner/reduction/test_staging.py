"""Gradients on a GPU, with streams that are slow: a copy happens only when somebody waits for it.

Runs in the system's Python, which has torch.
"""

from __future__ import annotations

import subprocess

from agents.runner.reduction.files_on_hosts import put_files
from tests.harness.reduction import PYTHON

PROGRAM = '''
import contextlib, torch
from trainyard_reduction.staging import Staging

class Event:
    def __init__(self, stream):
        self.stream, self.at = stream, len(stream.work)
    def synchronize(self):
        self.stream.run(self.at)

class Stream:
    """Work that is done only when an event behind it is waited for."""
    def __init__(self):
        self.work, self.done = [], 0
    def run(self, until):
        while self.done < until:
            self.done += 1
            self.work[self.done - 1]()

class Lazy:
    def __init__(self):
        self.programs, self.own, self.current, self.made = {}, {}, None, 0
    def program(self, device): return self.programs.setdefault(device, Stream())
    def stream(self, device): return self.own.setdefault(device, Stream())
    def mark(self, device): return Event(self.program(device))
    @contextlib.contextmanager
    def within(self, device):
        before, self.current = self.current, self.stream(device)
        yield
        self.current = before
    def wait(self, device, event): self.stream(device).work.append(event.synchronize)
    def record(self, device): return Event(self.stream(device))
    def copy(self, target, source): self.current.work.append(lambda: target.copy_(source))
    def pinned(self, like):
        self.made += 1
        return torch.full_like(like, -1.0)
    def keep(self, tensor, device): pass

cuda = Lazy()
staging = Staging(cuda)
buckets = []
for device in ("cuda:0", "cuda:1"):
    bucket = torch.zeros(8)
    cuda.program(device).work.append(lambda bucket=bucket, value=1.0 + int(device[-1]): bucket.fill_(value))
    buckets.append((device, bucket, cuda.mark(device)))

class Bucket(torch.Tensor):
    pass

Bucket.device = property(lambda self: self.__dict__.get("place", "cpu"))
held = []
for device, bucket, ready in buckets:
    bucket = bucket.as_subclass(Bucket); bucket.place = device
    host, small = staging.take(bucket, ready, torch.float32)
    held.append((device, bucket, host, small))
print("read whole:", [float(host[0]) for _, _, host, _ in held])
for device, bucket, host, small in held:
    host.mul_(10)
    with staging.within(device):
        staging.give_back(bucket, host, small)
print("not yet back:", [float(bucket[0]) for _, bucket, _, _ in held])
device, bucket, host, _ = held[0]
cuda.program(device).work.append(lambda: None)
again, _ = staging.take(bucket, cuda.mark(device), torch.float32)
print("the same buffer, after its copy:", again is host, float(bucket[0]), cuda.made)
for device, bucket, _, _ in held:
    cuda.stream(device).run(len(cuda.stream(device).work))
print("back:", [float(bucket[0]) for _, bucket, _, _ in held])
'''


def test_a_copy_is_read_when_it_is_whole_and_a_buffer_is_filled_again_when_it_is_read(tmp_path):
    files = put_files(str(tmp_path))
    done = subprocess.run(
        [PYTHON, "-c", PROGRAM],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": files},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "read whole: [1.0, 2.0]",
        "not yet back: [1.0, 2.0]",
        "the same buffer, after its copy: True 10.0 2",
        "back: [10.0, 20.0]",
    ], done.stderr
