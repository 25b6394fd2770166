#!/usr/bin/python3
"""Pass a token around a ring of MPI processes over several hosts, and print where each process is.

`mpi-ring` is what each replica runs. MPI's launcher logs in from one host to the others, which replicas cannot do for
each other. So the primary's launcher (MPICH's mpiexec) only says which command starts each host's part, and the primary
sends it to the replica there, at the address of CLUSTER_SPEC. `mpi-ring --member` is what the launcher starts.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time

SELF = "/usr/local/bin/mpi-ring"
PATIENCE_S = 120


def say(*words):
    print(*words, flush=True)


def member():
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    token = 0 if rank == 0 else world.recv(source=rank - 1)
    token += rank
    if rank + 1 < size:
        world.send(token, dest=rank + 1)
    total = world.bcast(token if rank + 1 == size else None, root=size - 1)
    say(f"rank {rank} of {size} on {socket.gethostname()}: sum {total}")
    # Each rank sends to each other one: MPICH 4.0 may wait for ever at its end for a rank that was only sent to.
    world.alltoall(range(size))


def replicas():
    spec = json.loads(os.environ["CLUSTER_SPEC"])
    addresses = [address for _, pool in sorted(spec["cluster"].items()) for address in pool]
    pairs = [address.rpartition(":") for address in addresses]
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]


def lead(places):
    """Start the launcher, hand each host its part, and wait for the end."""
    own = os.environ["PET_LOCAL_ADDR"]
    hosts = ",".join(f"{host}:2" for host, _ in places)
    words = ["mpiexec", "-launcher", "manual", "-localhost", own, "-hosts", hosts, "-n", str(2 * len(places))]
    # Each host has its own directory and variables; those of the primary would name its own GPUs.
    words += ["-wdir", "/tmp", "-genvlist", "PATH,PYTHONPATH,LD_LIBRARY_PATH"]
    launcher = subprocess.Popen([*words, SELF, "--member"], stdout=subprocess.PIPE, text=True)
    parts, started = iter(places), []
    for line in launcher.stdout:
        if line.startswith("HYDRA_LAUNCH:"):
            started.append(start(next(parts), shlex.split(line.partition(":")[2])))
        elif not line.startswith("HYDRA_LAUNCH_END"):
            say(line.rstrip())
    return launcher.wait()


def start(place, words):
    if place[0] == os.environ["PET_LOCAL_ADDR"]:
        return subprocess.Popen(words)
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            with socket.create_connection(place, 5) as follower:
                follower.sendall(json.dumps(words).encode() + b"\n")
                return None
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def follow(port):
    with socket.create_server(("", port)) as server:
        leader, _ = server.accept()
        with leader, leader.makefile() as lines:
            words = json.loads(lines.readline())
    sys.exit(subprocess.call(words))


def main():
    if "--member" in sys.argv:
        member()
    elif os.environ["RANK"] == "0":
        sys.exit(lead(replicas()))
    else:
        follow(replicas()[int(os.environ["RANK"])][1])


if __name__ == "__main__":
    main()
