#!/usr/bin/python3
"""Sum over all processes of a JAX cluster, one in each replica, and print the result of every process."""

from __future__ import annotations

import os
import socket

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

jax.config.update("jax_cpu_collectives_implementation", "gloo")


def main():
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    jax.distributed.initialize(address, int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
    rank, size = jax.process_index(), jax.process_count()
    ranks = multihost_utils.process_allgather(jnp.ones(1) * rank)
    print(f"rank {rank} of {size} on {socket.gethostname()}: sum {float(ranks.sum()):g}", flush=True)
    multihost_utils.sync_global_devices("the end")
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
