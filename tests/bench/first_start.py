"""The time from `git clone` to "ready", and on to the first line of a job: what a new user waits for."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.bench.figures import Figure
from tests.harness.hosts import Fleet
from tests.harness.leftovers import product_environment
from tests.harness.product import Client, job_spec
from tests.harness.product.product import PASSWORD, ROOT


def first_start(options):
    place = Path(tempfile.mkdtemp(prefix="bench-clone-"))
    try:
        yield from in_clone(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def in_clone(place):
    clone, output = place / "clone", place / "output"
    environment = product_environment() | {"TRAINYARD_PORT": "0", "TRAINYARD_DATA": str(place / "data")}
    begin = time.perf_counter()
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    # Packages are fetched over the machine's own network, so the private one is entered only for the hosts.
    subprocess.run(
        ["make", "-s", "install-run"], cwd=clone, env=environment, check=True, stdout=subprocess.DEVNULL
    )
    installed = time.perf_counter() - begin
    with Fleet(1) as fleet:
        begin_up = time.perf_counter()
        with output.open("wb") as file:
            up = subprocess.Popen(
                [str(clone / ".venv/bin/trainyard"), "up"],
                cwd=clone,
                env=environment,
                stdout=file,
                stderr=file,
            )
        try:
            url = ready(up, output)
            to_ready = installed + time.perf_counter() - begin_up
            first_line(clone, environment, url, fleet[0])
            to_line = installed + time.perf_counter() - begin_up
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(60)
    words = f"ready {to_ready:.0f} s, first line {to_line:.0f} s (install {installed:.0f} s)"
    yield Figure("fresh clone →", words)


def ready(up, output):
    while up.poll() is None:
        found = re.search(r"Trainyard is ready at (http://\S+)", output.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.05)
    raise AssertionError(output.read_text(errors="replace")[-2000:])


def first_line(clone, environment, url, host):
    def command(*words, stdin=None):
        program = str(clone / ".venv/bin/trainyard")
        done = subprocess.run(
            [program, *words],
            cwd=clone,
            env=environment,
            input=stdin,
            text=True,
            capture_output=True,
            check=True,
        )
        return done.stdout.strip()

    command("user", "add", "ada", "--admin", "--password-stdin", stdin=PASSWORD + "\n")
    client = Client(url, command("token", "create", "ada"))
    host.authorize(command("key"))
    command("host", "add", host.name, host.address, "--user", host.user, "--accept-first-key")
    job_id = client.submit(job_spec(["echo", "first"]))
    client.wait_for_log(job_id, "first")
