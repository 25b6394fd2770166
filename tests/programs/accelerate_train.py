#!/usr/bin/python3
"""Train a small model with Accelerate, and print the weights of every process.

Without a launcher, `Accelerator()` takes each replica for the only one: every replica trains a model of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import socket
import time

import torch
from accelerate import Accelerator

STEPS = 5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0, help="how long to go on at least")
    options = parser.parse_args()
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(accelerator.process_index)
    model = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    until = time.monotonic() + options.seconds
    for _ in range(STEPS):
        data = torch.randn(8, 4)
        loss = (model(data) - data.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    while time.monotonic() < until:
        time.sleep(0.1)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]
    place = f"rank {accelerator.process_index} of {accelerator.num_processes} on {socket.gethostname()}"
    # One write: torchrun starts Python with -u, and the end of a line would come after what another rank writes.
    print(f"{place}: weights {digest}\n", end="", flush=True)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
