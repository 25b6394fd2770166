"""Lighthouse, with Debian's Chromium, over the pages that people open most: its scores and what it found to be slow."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from urllib.request import urlopen

from playwright.sync_api import sync_playwright

from tests.bench.figures import Figure, percentile, short
from tests.bench.hosts_and_product import product_on_hosts
from tests.harness.browser import ARGUMENTS, BROWSERS, installed, log_in
from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

ROOT = Path(__file__).resolve().parents[2]
# tools/install-lighthouse puts it there, before the bench enters the network of the hosts.
LIGHTHOUSE = ROOT / "var/lighthouse/node_modules/lighthouse/cli/index.js"
# A laptop at a line of 10 Mbit/s; Lighthouse's phone has slow 4G and a quarter of the processor.
DEVICES = {"desktop": ("--preset=desktop",), "phone": ()}
# The last report of each page, to be read: what costs points, and why.
REPORTS = ROOT / "var/lighthouse-reports"
CATEGORIES = ("performance", "accessibility")
AIM = 95
# Chromium sometimes leaves the beginning out of the recording of a page. Then there is no score at all.
NOT_RECORDED, RECORDED_AGAIN = "NO_NAVSTART", 3
JOBS, LINES = 60, 3_000
PRINTS = (
    f"import time\nfor n in range({LINES}): print('step', n, 'loss 2.345678', flush=True)\ntime.sleep(600)"
)


def lighthouse(options):
    """The median score of some runs: the machine's other work makes single ones worse."""
    if not LIGHTHOUSE.exists():
        yield Figure("lighthouse", "not measured", "run tools/install-lighthouse")
        return
    runs = 1 if options.quick else 3
    with product_on_hosts("apart") as product, chromium_with_session(product) as port:
        for name, path in pages(product).items():
            for device, settings in DEVICES.items():
                reports = [report(f"{product.url}{path}", port, settings) for _ in range(runs)]
                REPORTS.mkdir(parents=True, exist_ok=True)
                (REPORTS / f"{name} {device}.json".replace(" ", "-")).write_text(json.dumps(reports[-1]))
                yield from figures(f"{name}, {device}", reports)


def pages(product):
    """A list with many jobs, one of them with a long log."""
    seen = product.submit(job_spec(["python3", "-c", PRINTS], name="seen"))
    for number in range(JOBS):
        product.submit(job_spec(["true"], name=f"job {number}"))
    product.client.wait_for_log(seen, f"step {LINES - 1}")
    return {
        "list of jobs": "/jobs/",
        "job": f"/jobs/{seen}/",
        "new job": "/jobs/new",
        "log": f"/jobs/{seen}/log/workerpool0-0",
    }


@contextlib.contextmanager
def chromium_with_session(product):
    """The port of a Chromium in which somebody is logged in. Playwright lets go of it before Lighthouse comes: two that
    drive one browser disturb the recording."""
    path = installed(*BROWSERS)
    port = free_port()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = [
            *ARGUMENTS,
            "--headless=new",
            f"--remote-debugging-port={port}",
            f"--user-data-dir={folder}",
        ]
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", path, *options, "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(lambda: answers(port), "Chromium to answer")
            with sync_playwright() as playwright:
                browser = playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{port}")
                page = browser.contexts[0].new_page()
                log_in(page, product.url)
                page.close()
                browser.close()
            yield port
        finally:
            process.terminate()
            process.wait(20)


def answers(port):
    with contextlib.suppress(OSError):
        return urlopen(f"http://127.0.0.1:{port}/json/version", timeout=2).status == 200


def report(url, port, settings):
    """The report of one run."""
    command = [
        shutil.which("node", path=f"{os.environ['PATH']}:{ROOT}/.venv/bin") or "node",
        str(LIGHTHOUSE),
        url,
        f"--port={port}",
        *settings,
        f"--only-categories={','.join(CATEGORIES)}",
        "--output=json",
        "--quiet",
        "--no-enable-error-reporting",
    ]
    done = run(command)
    for _ in range(RECORDED_AGAIN):
        if NOT_RECORDED in done.stderr:
            done = run(command)
    assert done.returncode == 0, done.stderr[-500:]
    found = json.loads(done.stdout)
    assert found["finalDisplayedUrl"].split("?")[0] == url, f"{url} led to {found['finalDisplayedUrl']}"
    return found


def run(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def figures(name, reports):
    for category in CATEGORIES:
        scores = [each["categories"][category]["score"] * 100 for each in reports]
        middle = percentile(scores, 0.5)
        told = f"{middle:.0f} of 100 ({', '.join(f'{score:.0f}' for score in scores)})"
        yield Figure(
            f"{category} of the page: {name}",
            told,
            faults(reports, category),
            None,
            f"≥ {AIM}",
            middle >= AIM,
        )
    audits = [each["audits"] for each in reports]
    times = {
        short_name: percentile([each[audit]["numericValue"] for each in audits], 0.5)
        for short_name, audit in (("LCP", "largest-contentful-paint"), ("TBT", "total-blocking-time"))
    }
    yield Figure(f"the same in ms: {name}", ", ".join(f"{key} {short(ms)}" for key, ms in times.items()))


def faults(reports, category):
    """The audits that cost points in the last run."""
    wanted = {each["id"] for each in reports[-1]["categories"][category]["auditRefs"] if each["weight"]}
    found = reports[-1]["audits"]
    lost = [name for name in wanted if found[name]["score"] is not None and found[name]["score"] < 0.9]
    return ", ".join(sorted(lost))[:100]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
