#!/usr/bin/python3
"""Every way in which torch's DistributedDataParallel reduces gradients, compared with what one process computes alone,
and with what gloo computes itself: the same model over a second group of all ranks, which no reducers know.

Prints a line for each: its name, and True if the gradients are right on this rank.
"""

from __future__ import annotations

import hashlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

OPTIONS = {
    "plain": {},
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    "static_graph": {"static_graph": True},
    "find_unused_parameters": {"find_unused_parameters": True},
    "tiny buckets": {"bucket_cap_mb": 0.001},
    "one bucket": {"bucket_cap_mb": 64},
    "no broadcast of buffers": {"broadcast_buffers": False},
}

# gloo itself cannot send bfloat16 in torch 1.
KINDS = (torch.float16, torch.float64, *([torch.bfloat16] if torch.__version__ >= "2" else []))


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)
    )


def inputs(step, rank, micro=0):
    seed = 1000 * step + 10 * rank + micro
    return torch.randn(4, 64, generator=torch.Generator().manual_seed(seed))


def mean(step, ranks, divisor, micros=1):
    """The gradients of a model that saw the inputs of these ranks, summed and divided."""
    model = net()
    for rank in ranks:
        for micro in range(micros):
            (model(inputs(step, rank, micro)).pow(2).mean() / divisor).backward()
    return model


def far(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a.grad.float() - b.grad).abs().max()) for a, b in pairs if b.grad is not None)


class Scale(nn.Module):
    """What CPUs compute with numbers of 16 bits too."""

    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, found):
        return (found * self.scale).float()


class Program:
    def __init__(self, exact):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.near = 1e-6 if exact else 2e-3
        # The default group goes through the reducers, and this one does not.
        self.groups = None, dist.new_group(range(self.world))

    def say(self, name, right):
        print(f"{name}: {bool(right)}", flush=True)

    def twice(self, name, right, steps, make=net, **options):
        """Let a model do these steps through the reducers, and another one by gloo itself."""
        models = []
        for group in self.groups:
            model = make()
            steps(DistributedDataParallel(model, process_group=group, **options))
            models.append(model)
        self.say(name, far(models[0], right) < self.near)
        self.say(f"{name}, as by gloo", far(*models) < self.near and far(models[1], right) < 1e-6)

    def options(self):
        def steps(ddp):
            for step in range(3):
                ddp.zero_grad()
                ddp(inputs(step, self.rank)).pow(2).mean().backward()

        for name, options in OPTIONS.items():
            self.twice(name, mean(2, range(self.world), self.world), steps, **options)

    def accumulation(self):
        def steps(ddp):
            with ddp.no_sync():
                ddp(inputs(5, self.rank, 0)).pow(2).mean().backward()
            ddp(inputs(5, self.rank, 1)).pow(2).mean().backward()

        self.twice("no_sync", mean(5, range(self.world), self.world, 2), steps)

    def uneven(self, by_all):
        """Rank r has r + 1 inputs: in the last step only the last rank has any."""

        def steps(ddp):
            with ddp.join(divide_by_initial_world_size=by_all):
                for step in range(self.rank + 1):
                    ddp.zero_grad()
                    ddp(inputs(step, self.rank)).pow(2).mean().backward()

        having = [rank for rank in range(self.world) if rank >= self.rank]
        right = mean(self.rank, having, self.world if by_all else len(having))
        self.twice(f"join, divided by {'all' if by_all else 'those with inputs'}", right, steps)

    def none_at_all(self):
        """The last rank has no inputs: its model is never called."""
        ddp = DistributedDataParallel(net())
        with ddp.join():
            for step in range(2 if self.rank < self.world - 1 else 0):
                ddp.zero_grad()
                ddp(inputs(step, self.rank)).pow(2).mean().backward()
        self.say("join without inputs", True)

    def own_hook(self, late):
        model = net()
        ddp = DistributedDataParallel(model)
        called = []

        def hook(state, bucket):
            called.append(bucket.index())
            return default_hooks.allreduce_hook(state, bucket)

        if not late:
            ddp.register_comm_hook(None, hook)
        ddp(inputs(1, self.rank)).pow(2).mean().backward()
        if late:
            ddp.register_comm_hook(None, hook)
            ddp.zero_grad()
            ddp(inputs(1, self.rank)).pow(2).mean().backward()
        right = far(model, mean(1, range(self.world), self.world)) < 1e-6
        self.say(f"own hook{', late' if late else ''}", right and called)

    def kinds(self):
        for kind in KINDS:
            model = Scale(64).to(kind)
            ddp = DistributedDataParallel(model)
            ddp(inputs(2, self.rank).to(kind)).sum().backward()
            right = sum(inputs(2, rank).double().sum(0) for rank in range(self.world)) / self.world
            near = {torch.float64: 1e-6, torch.float16: 3e-2, torch.bfloat16: 5e-2}[kind]
            self.say(str(kind), float((model.scale.grad.double() - right).abs().max()) < near)
            twin = Scale(64).to(kind)
            by_gloo = DistributedDataParallel(twin, process_group=self.groups[1])
            by_gloo(inputs(2, self.rank).to(kind)).sum().backward()
            far_from_gloo = float((model.scale.grad - twin.scale.grad).double().abs().max())
            self.say(f"{kind}, as by gloo", far_from_gloo < near)

    def overflow(self):
        """Sums of float16 beyond its range: the mean fits. Those of several processes in a replica are float32 on the
        wire, or what that is rounded to: bfloat16 has 8 bits of a number."""
        model = Scale(4).half()
        ddp = DistributedDataParallel(model)
        ddp(torch.full((1, 4), 60000.0).half()).sum().backward()
        is_rounded = self.near > 1e-6 and self.world > int(os.environ["TRAINYARD_REDUCTION_REPLICAS"])
        off = float((model.scale.grad - 60000.0).abs().max())
        self.say("float16 means of large sums", off <= (60000 / 256 if is_rounded else 0))

    def subgroup(self):
        """Two groups, each with a model: they have nothing to do with the reducers."""
        half = self.world // 2
        groups = [dist.new_group(range(half)), dist.new_group(range(half, self.world))]
        mine = range(half) if self.rank < half else range(half, self.world)
        model = net()
        ddp = DistributedDataParallel(model, process_group=groups[self.rank >= half])
        ddp(inputs(3, self.rank)).pow(2).mean().backward()
        self.say("subgroup", far(model, mean(3, mine, len(mine))) < 1e-6)

    def two_models(self):
        one, two = net(), net()
        first, second = DistributedDataParallel(one), DistributedDataParallel(two)
        (first(inputs(7, self.rank)).pow(2).mean() + second(inputs(8, self.rank)).pow(2).mean()).backward()
        right = mean(7, range(self.world), self.world), mean(8, range(self.world), self.world)
        self.say("two models", far(one, right[0]) < self.near and far(two, right[1]) < self.near)

    def again(self):
        """The bits of a model after some steps, for a comparison with other runs."""
        model = net()
        ddp = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            ddp(inputs(step, self.rank)).pow(2).mean().backward()
            optimizer.step()
        data = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
        print("bits:", hashlib.sha256(data).hexdigest()[:16], flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")

    program = Program(os.environ.get("TRAINYARD_REDUCTION_WIRE") != "bf16")
    program.options()
    program.accumulation()
    program.uneven(True)
    program.uneven(False)
    program.none_at_all()
    program.own_hook(False)
    program.own_hook(True)
    program.kinds()
    program.overflow()
    if program.world > 2:
        program.subgroup()
    program.two_models()
    program.again()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
