"""Gradients on a GPU, with streams that are slow: a copy happens only when somebody waits for it.

Runs in the system's Python, which has torch.
"""

from __future__ import annotations

import subprocess

from agents.runner.reduction.files_on_hosts import put_files
from tests.harness.reduction import PYTHON

STREAMS = '''
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


class Bucket(torch.Tensor):
    pass

Bucket.device = property(lambda self: self.__dict__.get("place", "cpu"))
'''
PROGRAM = """
cuda = Lazy()
staging = Staging(cuda)
buckets = []
for device in ("cuda:0", "cuda:1"):
    bucket = torch.zeros(8)
    cuda.program(device).work.append(lambda bucket=bucket, value=1.0 + int(device[-1]): bucket.fill_(value))
    buckets.append((device, bucket, cuda.mark(device)))

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
"""


# Two processes of one replica, as threads: each with a GPU of its own, whose work is done when it is waited for.
# A collective comes behind all that its stream was asked for before, as NCCL's does.
INSIDE = """
import sys, threading
from trainyard_reduction import inside
from trainyard_reduction.group import Plan

class Place(Lazy):
    def wait(self, device, event): event.synchronize()
    def choose(self, device): self.chosen = device
    def run(self): self.current.run(len(self.current.work))

class Collectives:
    def __init__(self):
        self.turn, self.given = threading.Barrier(2), {}
    def each(self, tensor):
        local.cuda.run()
        self.given[local.rank] = tensor.clone()
        self.turn.wait()
        found = [self.given[rank] for rank in (0, 1)]
        self.turn.wait()
        return found
    def reduce(self, tensor, dst, group):
        both = self.each(tensor)
        if local.rank == dst:
            tensor.copy_(both[0] + both[1])
    def broadcast(self, tensor, src, group):
        tensor.copy_(self.each(tensor)[src])

local, plan, said = threading.local(), Plan("5e" * 16, "", [0, 0]), {}
inside.dist = Collectives()

def process(rank, fails):
    local.rank, local.cuda = rank, Place()
    staging = Staging(local.cuda)
    bucket = torch.zeros(5).as_subclass(Bucket)
    bucket.place = "cuda:%d" % rank
    plain = bucket.as_subclass(torch.Tensor)
    local.cuda.program(bucket.place).work.append(lambda: plain.fill_(1.0 + rank))
    sent = []
    def send(part, done):
        sent.extend(part.tolist())
        if rank == 1 and fails:
            return done(RuntimeError("lost"))
        part[:-1] *= 10  # the reducers' mean over the replicas: one here
        done(None)
    ready = local.cuda.mark(bucket.place)
    error = inside.Inside("group", rank, plan, staging).mean(bucket, ready, False, False, torch.float32, send)
    said[rank] = sent, plain.tolist(), local.cuda.made, local.cuda.chosen, str(error)

for fails in (False, True):
    both = [threading.Thread(target=process, args=(rank, fails)) for rank in (0, 1)]
    for each in both: each.start()
    for each in both: each.join()
    for rank in (0, 1): print(*said[rank])
"""


def test_the_processes_of_a_replica_exchange_a_part_each_through_pinned_memory(tmp_path):
    """1 and 2 are summed to 3, each process sends its part of it, and both get the mean of all."""
    assert lines_of(tmp_path, STREAMS + INSIDE) == [
        "[3.0, 3.0, 2.0] [15.0, 15.0, 15.0, 15.0, 15.0] 1 cuda:0 None",
        "[3.0, 3.0, 3.0, 2.0] [15.0, 15.0, 15.0, 15.0, 15.0] 1 cuda:1 None",
        # The exchange of one failed: none of them takes what has come, and each has an error.
        "[3.0, 3.0, 2.0] [1.0, 1.0, 1.0, 1.0, 1.0] 1 cuda:0 another process of this replica says why",
        "[3.0, 3.0, 3.0, 2.0] [2.0, 2.0, 2.0, 2.0, 2.0] 1 cuda:1 lost",
    ]


def lines_of(tmp_path, program):
    done = subprocess.run(
        [PYTHON, "-c", program],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": put_files(str(tmp_path))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout.splitlines() or done.stderr


def test_a_copy_is_read_when_it_is_whole_and_a_buffer_is_filled_again_when_it_is_read(tmp_path):
    assert lines_of(tmp_path, STREAMS + PROGRAM) == [
        "read whole: [1.0, 2.0]",
        "not yet back: [1.0, 2.0]",
        "the same buffer, after its copy: True 10.0 2",
        "back: [10.0, 20.0]",
    ]
