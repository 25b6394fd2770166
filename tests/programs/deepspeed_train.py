#!/usr/bin/python3
"""Train a small model with DeepSpeed on CPUs, its optimizer's state split over all processes (ZeRO 1), and print the
weights of every process. To be started by torchrun, which gives each process its LOCAL_RANK.
"""

from __future__ import annotations

import hashlib
import os
import socket

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist

STEPS = 5
CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
}


def main():
    torch.set_num_threads(1)
    # It would compile an extension for processes of one host, in each of them; gloo does the same without.
    deepspeed.ops.__compatible_ops__.clear()
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(dist.get_rank())
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    for _ in range(STEPS):
        data = torch.randn(8, 4)
        loss = (engine(data) - data.sum(1, keepdim=True)).pow(2).mean()
        engine.backward(loss)
        engine.step()
    weights = torch.cat([parameter.detach().float().flatten() for parameter in engine.module.parameters()])
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]
    place = f"rank {dist.get_rank()} of {dist.get_world_size()} on {socket.gethostname()}"
    # One write: torchrun starts Python with -u, and the end of a line would come after what another rank writes.
    print(f"{place}: weights {digest}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
