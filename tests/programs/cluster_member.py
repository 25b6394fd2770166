#!/usr/bin/python3
"""A member of a cluster: prints its environment, listens at its own address, connects to every peer, and stays.

`environment {json}` is its environment, as far as the service set it. `waits for ADDRESS` is printed once for a peer
that does not answer yet; `met N` when it has spoken with all N members, itself included. The primary exits when all
members have, or with --until when that file exists; the others stay until they are stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
import threading
import time

SERVICE = (
    "CLOUD_ML_",
    "CLUSTER_SPEC",
    "TF_CONFIG",
    "MASTER_",
    "WORLD_SIZE",
    "RANK",
    "NODE_RANK",
    "PET_",
    "JAX_",
    "AIP_",
    "HOSTNAME",
    "GLOO_",
    "NCCL_",
)
ONE_BY_ONE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TRAINYARD_GPU_UUIDS", "PWD")
KNOCK_S = 0.05


def say(*words):
    print(*words, flush=True)


def environment():
    names = sorted(name for name in os.environ if name.startswith(SERVICE))
    names += [*ONE_BY_ONE]
    return {name: os.environ[name] for name in names if name in os.environ}


def parts(address):
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def listen(address):
    """Answer connections; return the list of members that have met all others."""
    server = socket.create_server(("", parts(address)[1]), backlog=64)
    happy = []

    def answer():
        while True:
            peer, _ = server.accept()
            with peer, contextlib.suppress(OSError):
                if peer.recv(1) == b"m":
                    happy.append(peer)
                peer.sendall(b"here")

    threading.Thread(target=answer, daemon=True).start()
    return happy


def meet(address, word=b"k"):
    waits = False
    while True:
        with contextlib.suppress(OSError), socket.create_connection(parts(address), 5) as peer:
            peer.sendall(word)
            if peer.recv(16) == b"here":
                return
        if not waits:
            say("waits for", address)
            waits = True
        time.sleep(KNOCK_S)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", default="", help="the primary stays until this file exists")
    until = os.path.expanduser(parser.parse_args().until)
    say("environment", json.dumps(environment()))
    with open("starts", "a") as starts:  # in the work directory, which a restart finds unchanged
        starts.write(os.environ["TRAINYARD_RUN"] + "\n")
    with open("starts") as starts:
        say("starts here:", len(starts.readlines()))
    spec = json.loads(os.environ["CLUSTER_SPEC"])
    happy = listen(spec["cluster"][spec["task"]["type"]][spec["task"]["index"]])
    peers = [address for pool in spec["cluster"].values() for address in pool]
    for address in peers:
        meet(address)
    say("met", len(peers))
    meet(spec["cluster"]["workerpool0"][0], b"m")
    primary = spec["task"]["type"] == "workerpool0"
    while not primary or (not os.path.exists(until) if until else len(happy) < len(peers)):
        time.sleep(KNOCK_S)
    sys.exit(0)


if __name__ == "__main__":
    main()
