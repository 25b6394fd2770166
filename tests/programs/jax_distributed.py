#!/usr/bin/python3
"""Sum over all processes of a JAX cluster, one in each replica, and print the result of every process.

JAX finds the coordinator by JAX_COORDINATOR_ADDRESS. Its collectives on CPUs (gloo) look up the host's own name, and
no variable tells them otherwise: with --hostname they are told the address in code.
"""

from __future__ import annotations

import functools
import os
import socket
import sys

import jax
import jax.numpy as jnp
from jax._src import xla_bridge
from jax.experimental import multihost_utils

jax.config.update("jax_cpu_collectives_implementation", "gloo")


def main():
    if "--hostname" in sys.argv:
        make = functools.partial(
            xla_bridge._jax.make_gloo_tcp_collectives, hostname=os.environ["PET_LOCAL_ADDR"]
        )
        xla_bridge._jax.make_gloo_tcp_collectives = make
    jax.distributed.initialize(
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
    )
    rank, size = jax.process_index(), jax.process_count()
    ranks = multihost_utils.process_allgather(jnp.ones(1) * rank)
    print(f"rank {rank} of {size} on {socket.gethostname()}: sum {float(ranks.sum()):g}", flush=True)
    multihost_utils.sync_global_devices("the end")
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
