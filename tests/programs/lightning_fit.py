#!/usr/bin/python3
"""Fit a small model with Lightning over all replicas, two processes in each, and print the weights of every rank.

Lightning starts the processes of a replica by itself, and finds the others by MASTER_ADDR, MASTER_PORT and NODE_RANK.
The number of nodes is read from PET_NNODES: in the processes that Lightning starts, WORLD_SIZE counts processes.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys

import lightning
import torch

sys.stdout.reconfigure(line_buffering=True)


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        return (self.layer(batch) - batch.sum(1, keepdim=True)).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    torch.set_num_threads(1)
    data = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=8)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        num_nodes=int(os.environ["PET_NNODES"]),
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Line()
    trainer.fit(model, data)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]
    place = f"rank {trainer.global_rank} of {trainer.world_size} on {socket.gethostname()}"
    # One write: torchrun starts Python with -u, and the end of a line would come after what another rank writes.
    print(f"{place}: weights {digest}\n", end="", flush=True)


if __name__ == "__main__":
    main()
