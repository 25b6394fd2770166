#!/usr/bin/python3
"""A program that fails in a given way until a given attempt: `fail-until --how exit:6 --until-attempt 2`.

It keeps a checkpoint in AIP_CHECKPOINT_DIR, where there is one, and says which runs it finds there.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys

NEVER = 10**6


def remember(run):
    directory = os.environ.get("AIP_CHECKPOINT_DIR")
    if not directory:
        return
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "runs")
    with open(path, "a") as runs:
        runs.write(run + "\n")
    with open(path) as runs:
        print("checkpoint of", *runs.read().split(), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", default="exit:1", help="exit:CODE, signal:NAME, or abort")
    parser.add_argument("--until-run", type=int, default=NEVER, help="well in this run of an attempt, from 0")
    parser.add_argument("--until-attempt", type=int, default=NEVER)
    options = parser.parse_args()
    run = os.environ["TRAINYARD_RUN"]
    attempt, number = map(int, re.search(r"-a(\d+)-r(\d+)$", run).groups())
    print(f"attempt {attempt} run {number}", flush=True)
    remember(run)
    if attempt >= options.until_attempt or number >= options.until_run:
        print("well", flush=True)
        sys.exit(0)
    how, _, what = options.how.partition(":")
    if how == "abort":
        os.abort()
    if how == "signal":
        os.kill(os.getpid(), getattr(signal, f"SIG{what}"))
    sys.exit(int(what))


if __name__ == "__main__":
    main()
