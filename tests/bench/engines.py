"""How long a run in a container takes to its first line, beside the same container started by hand."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

from agents.runner.home import Home
from tests.bench.figures import Figure, percentile, spread
from tests.harness.containers import ENGINES, IMAGE
from tests.unit.agents.runner.protocol_client import Host
from tests.unit.agents.runner.runtimes.container_runs import connect, start

MOST = 1.3
PROGRAM = ["sh", "-c", "echo first"]


def engines(options):
    """By the runner alone, from the order to the line that it sends: what the console adds is measured elsewhere."""
    count = 5 if options.quick else 40
    for kind in ENGINES:
        with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as place:
            yield compared(kind, Path(place), count)


def compared(kind, place, count):
    engine = ENGINES[kind](place / kind)
    try:
        engine.make_image()
        (place / "home").mkdir()
        host = Host(place / "home")
        try:
            console = connect(host, engine)
            words = by_hand(engine)
            # In turns, so that both meet the same machine. The first pair is the engine's first start.
            image = image_id(engine)
            pairs = [
                (ours_ms(console, f"r{turn}", image), hand_ms(engine, words)) for turn in range(count + 1)
            ]
        finally:
            host.clean()
    finally:
        engine.remove()
    ours, hand = (list(times) for times in zip(*pairs[1:], strict=True))
    ratio = percentile(ours, 0.5) / percentile(hand, 0.5)
    aim = f"≤ {MOST} ×" if kind == "podman" else ""
    name = f"start order → first line, in a container of {kind}"
    return Figure(
        name, spread(ours), f"{kind} by hand {spread(hand)}", ratio, aim, ratio <= MOST if aim else None
    )


def by_hand(engine):
    if engine.kind != "apptainer":
        return [engine.kind, "run", "--rm", "--network=host", IMAGE, *PROGRAM]
    home = Home("dep")
    home.base = str(engine.place / "store")
    [root] = Path(home.base, "cache", "images").glob("*/root")
    return ["apptainer", "--silent", "exec", "--userns", str(root), *PROGRAM]


def hand_ms(engine, words):
    """Until its first line. Its end is waited for, but not measured."""
    began = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ, **engine.env}) as process:
        assert process.stdout.readline() == b"first\n"
        return (time.perf_counter() - began) * 1000


def image_id(engine):
    """As the console orders it once its host has prepared it."""
    if engine.kind == "apptainer":
        return IMAGE
    return engine("image", "inspect", "--format", "{{.Id}}", IMAGE).strip().rpartition(":")[2]


def ours_ms(console, run, image):
    began = time.perf_counter()
    start(console, run, PROGRAM[-1], image=image)
    console.text(run, "first")
    took = (time.perf_counter() - began) * 1000
    console.closed(run)
    return took
