"""How long `trainyard jobs` takes in a terminal, from the start of its process until its last line."""

from __future__ import annotations

import subprocess
import tempfile
import time

from tests.bench.figures import Figure, percentile, spread
from tests.bench.hosts_and_product import product_on_hosts
from tests.harness.command_line import CommandLine
from tests.harness.product import job_spec

JOBS = 50
AIM_MS = 300


def listed_jobs(options):
    count = 5 if options.quick else 40
    with product_on_hosts("apart", hosts=1) as product, tempfile.TemporaryDirectory() as folder:
        command = CommandLine(folder)
        command.run("login", "--token", product.url, stdin=product.client.token + "\n")
        for number in range(JOBS):
            product.submit(job_spec(["true"], name=f"listed {number}"))
        for _ in range(3):
            on_terminal_ms(command)
        # In turns, so that both meet the same machine.
        pairs = [(on_terminal_ms(command), bare_ms(command)) for _ in range(count)]
    ours, bare = (list(times) for times in zip(*pairs, strict=True))
    p50 = percentile(ours, 0.5)
    yield Figure(
        f"trainyard jobs, {JOBS} of them, in a terminal",
        spread(ours),
        f"its Python alone {spread(bare)}",
        p50 / percentile(bare, 0.5),
        f"p50 ≤ {AIM_MS} ms",
        p50 <= AIM_MS,
    )


def on_terminal_ms(command):
    """Until its last line is there, and its process has ended."""
    begin = time.perf_counter()
    with command.terminal("jobs", "--limit", JOBS, cols=160) as terminal:
        code = terminal.ended()
        elapsed = (time.perf_counter() - begin) * 1000
    assert code == 0 and terminal.shown.count("listed ") == JOBS, terminal.shown
    return elapsed


def bare_ms(command):
    begin = time.perf_counter()
    subprocess.run([command.interpreter, "-c", "pass"], check=True)
    return (time.perf_counter() - begin) * 1000
