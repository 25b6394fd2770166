#!/usr/bin/python3
"""An ordinary program with DistributedDataParallel: times whole training steps, and shows that all ranks end alike."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 2


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, width = dist.get_rank(), int(os.environ["WIDTH"])
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(3)])
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank + 1)
    times = []
    for _ in range(WARM_UP + int(os.environ["STEPS"])):
        data = torch.randn(8, width, generator=generator)
        begin = time.monotonic()
        optimizer.zero_grad()
        ddp(data).pow(2).mean().backward()
        optimizer.step()
        times.append(time.monotonic() - begin)
    sums = torch.stack([each.detach().double().sum() for each in model.parameters()])
    others = [torch.zeros_like(sums) for _ in range(dist.get_world_size())]
    dist.all_gather(others, sums)
    equal = all(bool((each == sums).all()) for each in others)
    ordered = sorted(times[WARM_UP:])
    if rank == 0:
        print(
            f"median {ordered[len(ordered) // 2]:.3f} equal {equal} sum {float(sums.sum()):.9f}", flush=True
        )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
