"""What the tests of runs in containers share: a runner with an engine; a run is started, watched, stopped."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

from agents.runner.processes import all_processes
from tests.harness.containers import IMAGE
from tests.unit.agents.runner.protocol_client import wait_for


def connect(host, engine, epoch=1, **env):
    host.env.update(engine.env, **env)
    engine.give(host)
    console = host.connect()
    console.hello(epoch=epoch)
    console.engine = engine.kind
    return console


def start(console, run, *words, image=IMAGE, runtime=None, **order):
    """A run whose ENTRYPOINT is a shell."""
    runtime = {
        "kind": console.engine,
        "image": image,
        "entrypoint": ["sh", "-c"],
        "args": list(words),
        **(runtime or {}),
    }
    console.start(run, ["unused"], runtime=runtime, **order)


def pid_in(host, run, name="container.pid"):
    return int((Path(host.facts(run)["runtime"]["place"]) / name).read_text())


def client_of(facts):
    """The engine's client of a run: that of Docker reads its output."""
    name = facts["runtime"]["name"].encode()
    for pid in all_processes():
        with contextlib.suppress(OSError):  # it has just ended
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[1:2] in ([b"run"], [b"logs"]) and name in words:
                return pid
    return 0


def follower_of(facts):
    title = f"trainyard-follower {facts['runtime']['name']}".encode()
    for pid in all_processes():
        with contextlib.suppress(OSError):  # it has just ended
            if Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0") == title:
                return pid
    return 0


def is_alive(pid):
    found = all_processes().get(pid)
    return found is not None and found.state not in "ZX"


def stop_while_it_is_made(host, engine, tmp_path, slow):
    """`slow`: a script in the place of the engine, which says that it has begun and waits."""
    place = tmp_path / "slow"
    place.mkdir()
    program = place / engine.kind
    program.write_text(slow.format(place=place, engine=shutil.which(engine.kind)))
    program.chmod(0o755)
    console = connect(host, engine, PATH=f"{place}:{host.env['PATH']}")
    start(console, "r1", "echo ran; trap '' TERM; while true; do sleep 0.1; done")
    wait_for((place / "begun").exists, "the engine to begin")
    began = time.monotonic()
    console.stop("r1", 60)
    facts = console.closed("r1")
    assert time.monotonic() - began < 20 and (facts["why"], facts["never_started"]) == ("stop", True)
    assert b"ran" not in console.ended_log("r1")[0]
    wait_for(lambda: not engine.containers(), "no container to be left")
