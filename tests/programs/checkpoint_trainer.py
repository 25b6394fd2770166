#!/usr/bin/python3
"""Train in steps, as the documents advise: save a checkpoint again and again, and go on from the latest one.

At SIGTERM it finishes its step, takes its time to save, and exits with 0. It prints `begins at step N`,
`step N`, `saved step N` once that is on the disk, and `done at step N`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

STEP_S = 0.05


def say(*words):
    print(*words, flush=True)


class Checkpoint:
    """A file of this replica in the directory that the service names, replaced whole or not at all."""

    def __init__(self):
        directory = os.environ["AIP_CHECKPOINT_DIR"]
        os.makedirs(directory, exist_ok=True)
        name = os.environ["TRAINYARD_RUN"].split("-", 1)[1].rsplit("-a", 1)[0]
        self.path = os.path.join(directory, name)

    def load(self):
        try:
            with open(self.path) as file:
                return int(file.read())
        except FileNotFoundError:
            return 0

    def save(self, step):
        with open(self.path + ".new", "w") as file:
            file.write(str(step))
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path + ".new", self.path)
        say("saved step", step)


def save_slowly(options):
    until, enough = time.monotonic() + options.saving, os.path.expanduser(options.saving_until)
    while time.monotonic() < until or (enough and not os.path.exists(enough)):
        time.sleep(STEP_S)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", required=True, help="train until this file exists")
    parser.add_argument("--every", type=int, default=5, help="steps between checkpoints")
    parser.add_argument("--saving", type=float, default=0, help="seconds that the last one takes at least")
    parser.add_argument("--saving-until", default="", help="and it is not done before this file exists")
    options = parser.parse_args()
    leave = []
    signal.signal(signal.SIGTERM, lambda number, frame: leave.append(number))
    checkpoint = Checkpoint()
    step = checkpoint.load()
    say("begins at step", step)
    while not os.path.exists(os.path.expanduser(options.until)):
        time.sleep(STEP_S)
        step += 1
        say("step", step)
        if leave:
            say("got SIGTERM")
            save_slowly(options)
            checkpoint.save(step)
            sys.exit(0)
        if step % options.every == 0:
            checkpoint.save(step)
    say("done at step", step)


if __name__ == "__main__":
    main()
