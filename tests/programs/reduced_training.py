#!/usr/bin/python3
"""Train until something happens to the group: what, the options say. Prints "goes on" once all ranks have trained."""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--of", type=int, default=1, help="the rank that is different")
    parser.add_argument("--raises-at", type=int, default=-1)
    parser.add_argument("--cuts-differently", action="store_true")
    parser.add_argument("--ends-hard", action="store_true", help="by os._exit, without a goodbye")
    parser.add_argument("--forks", action="store_true", help="has a child at each step, as a DataLoader has")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    different = rank == options.of
    torch.manual_seed(0)
    width = options.width
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    # With this option the first step has several buckets, without it one.
    unused = different and options.cuts_differently
    ddp = DistributedDataParallel(model, find_unused_parameters=unused)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for step in range(options.steps):
        if options.forks and step % 2:
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
        optimizer.zero_grad()
        ddp(torch.randn(4, width)).pow(2).mean().backward()
        optimizer.step()
        if different and step == options.raises_at:
            raise ValueError("an error of the program")
        if step == 5:
            print(f"rank {rank} goes on", flush=True)
    print(f"rank {rank} is done", flush=True)
    if options.ends_hard:
        if different:
            os._exit(0)
        time.sleep(1)  # the others are still there when it has gone
        os._exit(0)


if __name__ == "__main__":
    main()
