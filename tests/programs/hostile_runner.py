#!/usr/bin/python3
"""A program that takes the place of the runner of its login, and then floods the console in one way.

`hostile-runner FLOOD` (as a job) waits for the file `~/.flood-now`, replaces the runner's file, ends the running one,
and stays. As `python3 <sha>.pyz serve` it greets as the runner does, and floods. It stops by itself.
"""

from __future__ import annotations

import glob
import json
import os
import signal
import sys
import threading
import time

FLOOD_S = 60.0
FLOOD_FILE = "~/.flood"
NOW_FILE = "~/.flood-now"
RUN = "1234567890-workerpool0-0-a1-r0"


def write(data):
    while data:
        data = data[os.write(1, data) :]


def line(kind, **fields):
    return json.dumps(dict(fields, t=kind)).encode() + b"\n"


def without_end(data, pause_s=0.0):
    until = time.monotonic() + FLOOD_S
    while time.monotonic() < until:
        write(data)
        time.sleep(pause_s)


def greeting():
    sha = os.path.basename(sys.argv[0]).split(".")[0]
    return line(
        "hello", v=1, sha=sha, boot_id="hostile", wall=time.time(), mono=1.0, free_mb=1000, mark=0, seal=""
    )


def inventory(runs, last):
    return line("inventory", runs=runs, last=last)


def fact(number=0, phase="running"):
    return {"run": RUN[:-1] + str(number), "phase": phase}


def many_runs():
    """Reports of so many runs that no host has them."""
    number = 0
    until = time.monotonic() + FLOOD_S
    while time.monotonic() < until:
        write(inventory([fact(each, "closed") for each in range(number, number + 800)], False))
        number += 800


def facts_of_many_runs():
    number = 0
    until = time.monotonic() + FLOOD_S
    while time.monotonic() < until:
        write(b"".join(line("fact", **fact(each)) for each in range(number, number + 100)))
        number += 100


def whole_start():
    write(greeting() + inventory([fact()], False) + inventory([], True))


SAMPLE = {"run": RUN, "at": 1.0, "cpu": 1.0, "rss_mb": 1, "gpus": {}, "disk_free_mb": 1}
LOG = {"z": 0, "at": []}
REPEATED = {
    "samples": line("sample", **SAMPLE),
    "samples of unknown runs": line("sample", **dict(SAMPLE, run="nobody")),
    "logs of unknown runs": line("log", run=RUN, n=3, **dict(LOG, **{"from": 0, "to": 3})) + b"abc",
    "gaps of unknown runs": line("gap", run=RUN, reason="x", **{"from": 0, "to": 3}),
    "ends of unknown logs": line("log_end", run=RUN, size=3, digest="x"),
    "facts of one run": line("fact", **fact()),
    "forgotten runs": line("forgotten", run="nobody"),
    "looks at GPUs": line("gpus", gpus={f"GPU-{n}": [] for n in range(500)}, free=[], unseen=0, error=""),
    "answers to evictions": line("evicted", gpu="GPU-1", words=["x"] * 100),
    "errors": line("error", about="pull", run=RUN, message="no"),
    "pongs": line("pong", id=1, wall=1.0, mono=1.0),
    "unknown frames": line("x"),
    "largest frames": line("x", junk=[{}] * 20_000),
    "inventories": inventory([], True),
}
FLOODS = {
    "greetings": lambda: without_end(greeting()),
    "a huge payload": lambda: (
        whole_start(),
        without_end(b'{"t":"log","run":"r","n":8000000}\n' + b"x" * 65536),
    ),
    "many runs": lambda: (write(greeting()), many_runs()),
    "facts of many runs": lambda: (whole_start(), facts_of_many_runs()),
    "half a frame": lambda: (whole_start(), write(b'{"t":"x","a":"'), without_end(b"x", 0.2)),
    "no inventory": lambda: (write(greeting()), without_end(line("pong", id=1, wall=1.0, mono=1.0), 0.5)),
}


def read_stdin():
    while os.read(0, 65536):
        pass


def serve():
    with open(os.path.expanduser(FLOOD_FILE)) as file:
        flood = file.read().strip()
    threading.Thread(target=read_stdin, daemon=True).start()
    write(b"TRAINYARD-RUNNER 1\n")
    if flood in FLOODS:
        FLOODS[flood]()
    else:
        whole_start()
        without_end(REPEATED[flood] * max(1, 20_000 // len(REPEATED[flood])))


def serves(pid):
    """Whether it is the runner of a link. The keepers of runs, which are forks of it, have no connection."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        connected = os.readlink(f"/proc/{pid}/fd/0").startswith(("pipe:", "socket:"))
    except OSError:
        return False
    return connected and b"serve" in words and any(word.endswith(b".pyz") for word in words)


def wait_for_the_order():
    """The runner that is ended below may not yet have told that this job runs."""
    until = time.monotonic() + FLOOD_S
    while not os.path.exists(os.path.expanduser(NOW_FILE)) and time.monotonic() < until:
        time.sleep(0.05)


def take_over(flood):
    """Replace the runner's file, and end the runner that serves now."""
    with open(os.path.expanduser(FLOOD_FILE), "w") as file:
        file.write(flood)
    with open(__file__, "rb") as file:
        own = file.read()
    for path in glob.glob(os.path.expanduser("~/.trainyard/bin/*.pyz")):
        with open(path + ".new", "wb") as file:
            file.write(own)
        os.rename(path + ".new", path)
    for pid in filter(serves, filter(str.isdigit, os.listdir("/proc"))):
        os.kill(int(pid), signal.SIGKILL)
    print("taken over", flush=True)
    time.sleep(FLOOD_S)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        wait_for_the_order()
        take_over(" ".join(sys.argv[1:]))
