"""Run every part, then print one table: python -m tests.bench [PART ...] [--quick] [--json FILE]."""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.bench import (
    crowd,
    decide,
    engines,
    first_start,
    giant,
    idle,
    jobs,
    lifecycle,
    lighthouse,
    logs,
    packages,
    paint,
    reduction,
    shell,
    shipping,
    stored_files,
    tab,
    terminal,
    tuning,
    viewers,
)
from tests.bench.figures import Figure, table
from tests.bench.this_machine import ThisMachine

PARTS = {
    # Before all others: those enter the network of the hosts, from which no package can be fetched.
    "first-start": first_start.first_start,
    "tuning": tuning.tuning,
    "reduction": reduction.reduction,
    "decide": decide.decide,
    "first-line": jobs.first_line,
    "jobs": jobs.throughput,
    "lines": logs.line_latency,
    "bulk": logs.bulk,
    "giant": giant.giant,
    "tab": tab.tab,
    "viewers": viewers.viewers,
    "lighthouse": lighthouse.lighthouse,
    "crowd": crowd.crowd,
    "shell": shell.shell,
    "paint": paint.paint,
    "idle": idle.idle_links,
    "restart": lifecycle.restart,
    "spread": lifecycle.start_spread,
    "cancel": lifecycle.cancel,
    "package": packages.second_start,
    "engines": engines.engines,
    "upload": stored_files.upload,
    "ship": shipping.shipping,
    "outputs": stored_files.outputs,
    "terminal": terminal.listed_jobs,
}


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--quick", action="store_true", help="fewer repetitions: shows that it runs, not how fast"
    )
    parser.add_argument("--log-mb", type=int, default=0, help="size of the bulk log (500)")
    parser.add_argument("--ship-mb", type=int, default=0, help="size of the code that is shipped (1000)")
    parser.add_argument("--tab-s", type=int, default=300, help="how long the tab follows 5,000 lines/s (300)")
    parser.add_argument("--json", default="", help="write the figures to this file too")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}. There are: {', '.join(PARTS)}")
    figures, machine = [], ThisMachine()
    for name in options.parts or PARTS:
        begin = time.monotonic()
        figures += measured(name, options)
        print(f"bench: {name} took {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    print(table([*figures, machine.figure()]))
    if options.json:
        with open(options.json, "w") as file:
            json.dump([each.as_row() for each in figures], file, indent=1)
    return 1 if any(each.ours == "failed" for each in figures) else 0


def measured(name, options):
    """Measure one part. If it breaks, the table says so, and the others are measured all the same."""
    try:
        return list(PARTS[name](options))
    except Exception as error:
        print(f"bench: {name}: {error!r}", file=sys.stderr, flush=True)
        return [Figure(name, "failed", str(error).splitlines()[0][:100])]


sys.exit(main())
