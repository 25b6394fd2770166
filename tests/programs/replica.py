#!/usr/bin/python3
"""A training program that keeps its own ledger: what it was given, when it lived, and every byte that it printed.

The ledger is a file that Trainyard does not know, one JSON object a line. Each process has its own, because a process
that is killed while it writes leaves half a line, to which no other process may append:
  {"event": "start"|"beat"|"end"|"child", "run", "boot_id", "pid", "ticks", "gpus", "mono", "wall", "out", "sha256",
   "reports"}
"out" and "sha256" are the size and the digest of everything that went to stdout so far; "reports" is how many
reports of metrics it has made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import time

BEAT_S = 0.2


class Ledger:
    def __init__(self):
        default = "/var/ledger" if os.path.isdir("/var/ledger") else os.path.expanduser("~")
        self.place = os.environ.get("LEDGER", default)
        self.due = 0.0
        self.reports = 0
        with open("/proc/sys/kernel/random/boot_id") as source:
            self.boot_id = source.read().strip()

    def write(self, event, printer):
        self.due = time.monotonic() + BEAT_S
        line = {
            "event": event,
            "run": os.environ.get("TRAINYARD_RUN", ""),
            "boot_id": self.boot_id,
            "pid": os.getpid(),
            "ticks": start_ticks(),
            "gpus": [gpu for gpu in os.environ.get("TRAINYARD_GPU_UUIDS", "").split(",") if gpu],
            "mono": time.monotonic(),
            "wall": time.time(),
            "out": printer.size,
            "sha256": printer.digest.hexdigest(),
            "reports": self.reports,
        }
        name = f"{self.boot_id}-{line['pid']}-{line['ticks']}.jsonl"
        file = os.open(os.path.join(self.place, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.write(file, (json.dumps(line) + "\n").encode())
        os.close(file)

    def beat(self, printer):
        if time.monotonic() >= self.due:
            self.write("beat", printer)


class Printer:
    """Counts and hashes the bytes that the kernel accepted: a full disk accepts fewer than it is given."""

    def __init__(self):
        self.size = 0
        self.digest = hashlib.sha256()

    def print(self, data):
        while data:
            try:
                taken = os.write(1, data)
            except OSError:  # the disk is full: what was not written was never printed
                return
            self.size += taken
            self.digest.update(data[:taken])
            data = data[taken:]


def start_ticks():
    with open("/proc/self/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[19])


def daemonize(ledger, count):
    """Start children that leave the process group and the session and drop their environment, as daemons do."""
    for _ in range(count):
        if os.fork():
            continue
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ledger.write("child", Printer())
        os.execve("/bin/sleep", ["daemon-of-" + os.environ.get("TRAINYARD_RUN", ""), "1000"], {})


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--every", type=float, default=0.05, help="seconds between lines")
    parser.add_argument("--mb", type=float, default=0, help="megabytes of text to print at once first")
    parser.add_argument(
        "--binary", type=float, default=0, help="megabytes of random bytes to print at once first"
    )
    parser.add_argument("--exit", type=int, default=0)
    parser.add_argument("--signal", type=int, default=0, help="end by this signal instead")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--daemons", type=int, default=0)
    parser.add_argument("--report", type=int, default=0, help="how many reports of a metric to make first")
    parser.add_argument("--until", default="", help="go on until this file exists")
    return parser.parse_args()


def pour(printer, ledger, options):
    block = b"".join(
        b"step %07d loss 0.%05d lr 1.0e-04 tokens/s 12345\n" % (n, n * 37 % 99999) for n in range(2000)
    )
    left = int(options.mb * 1e6)
    while left > 0:
        printer.print(block[:left])
        left -= len(block)
        ledger.beat(printer)
    left = int(options.binary * 1e6)
    while left > 0:
        printer.print(os.urandom(min(left, 65536)))
        left -= 65536
        ledger.beat(printer)


def report(ledger, count):
    """Each line by one write, counted when the kernel has it."""
    if count:
        file = os.open(os.environ["TRAINYARD_METRICS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for step in range(1, count + 1):
            os.write(file, (json.dumps({"step": step, "loss": 1 / step}) + "\n").encode())
            ledger.reports += 1
        os.close(file)


def main():
    options = parse()
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ledger, printer = Ledger(), Printer()
    ledger.write("start", printer)
    daemonize(ledger, options.daemons)
    report(ledger, options.report)
    pour(printer, ledger, options)
    ends, number = time.monotonic() + options.seconds, 0
    until = os.path.expanduser(options.until)
    while not os.path.exists(until) if until else time.monotonic() < ends:
        printer.print(b"line %d at %.6f\n" % (number, time.time()))
        number += 1
        ledger.beat(printer)
        time.sleep(options.every)
    printer.print(b"done after %d lines\n" % number)
    ledger.write("end", printer)
    if options.signal:
        os.kill(os.getpid(), options.signal)
    sys.exit(options.exit)


if __name__ == "__main__":
    main()
