#!/usr/bin/python3
"""Train a small model with torch's DistributedDataParallel, by gloo, and print the weights of every rank.

It finds its group by --by env (MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK, as the service or torchrun sets them) or
--by cluster-spec (from CLUSTER_SPEC alone, as a program does that does not know those).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 5


def from_cluster_spec():
    spec = json.loads(os.environ["CLUSTER_SPEC"])
    task = (spec["task"]["type"], spec["task"]["index"])
    replicas = [
        (pool, index) for pool, hosts in sorted(spec["cluster"].items()) for index in range(len(hosts))
    ]
    return f"tcp://{spec['cluster']['workerpool0'][0]}", replicas.index(task), len(replicas)


def join(how):
    if how == "env":
        dist.init_process_group("gloo")
    else:
        method, rank, size = from_cluster_spec()
        for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"):
            os.environ.pop(name, None)
        dist.init_process_group("gloo", init_method=method, rank=rank, world_size=size)
    return dist.get_rank(), dist.get_world_size()


def train(rank, steps):
    torch.manual_seed(rank)  # every rank begins elsewhere and sees other data: DDP makes them one
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        data = torch.randn(8, 4)
        loss = (model(data) - data.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == STEPS:
            print(f"rank {rank} goes on", flush=True)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--by", choices=("env", "cluster-spec"), default="env")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rank, size = join(options.by)
    weights = train(rank, options.steps)
    total = torch.ones(1) * rank
    dist.all_reduce(total)
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]
    place = f"rank {rank} of {size} on {socket.gethostname()}"
    # One write: torchrun starts Python with -u, and the end of a line would come after what another rank writes.
    print(f"{place}: sum {total.item():g} weights {digest}\n", end="", flush=True)
    dist.barrier()  # no rank exits before all are done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
