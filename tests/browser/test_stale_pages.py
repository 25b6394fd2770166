"""A page whose path is cut says so and since when; it is right again soon after the path is back.

All pages are tabs of one context over one path, which is frozen once: nothing is closed, and no new connection opens.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.harness.browser import log_in
from tests.harness.freezing_proxy import FreezingProxy
from tests.harness.product import Product, job_spec

# Somebody who looks at a page learns within this time that it is old, and sees the truth so long after it can be known.
STALE_WITHIN_S, RIGHT_WITHIN_S = 10.0, 2.0
FROZEN_S = 70.0

pytestmark = [pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def yard():
    # Nothing listens there. The host is a row with a page, which is all that is needed.
    with Product() as product:
        product.with_admin()
        product.command(
            "host",
            "add",
            "gpu-a",
            "127.0.0.1",
            "--port",
            "9",
            "--user",
            "gpu",
            "--accept-first-key",
            check=False,
        )
        yield product
        print(product.tail())  # pytest shows it when something failed


@pytest.fixture
def path(yard):
    with FreezingProxy(yard.url) as path:
        yield path


# Notes in the page when the state of its link changed, and how late its own timers are: a machine that is too busy to
# run the page's script is no dead path.
WATCH = """() => {
  window.changes = []; window.late = 0;
  const dot = document.getElementById("link-dot");
  new MutationObserver(() => window.changes.push([Date.now() / 1000, dot.dataset.state]))
    .observe(dot, { attributes: true, attributeFilter: ["data-state"] });
  let before = performance.now();
  setInterval(() => {
    const now = performance.now();
    window.late = Math.max(window.late, (now - before - 100) / 1000);
    before = now;
  }, 100);
}"""


def pages(job):
    return [
        *("/jobs/", f"/jobs/{job}/", f"/jobs/{job}/events", f"/jobs/{job}/metrics"),
        *("/hosts/", "/hosts/1/", "/hosts/gpus"),
        *("/projects/", "/projects/default/", "/usage/", "/account/notifications", "/audit/"),
        *(
            "/hosts/keys",
            "/admin/people/",
            "/account",
            "/account/security",
            "/projects/default/notifications",
        ),
    ]


def until(true, page):
    for _ in range(1200):
        if true():
            return
        page.wait_for_timeout(50)
    raise AssertionError("still not so after a minute")


def state_of(tab):
    return tab.locator("#link-dot").get_attribute("data-state")


def delay(tab, since, state, server=None):
    """After how long the page changed to this state, without the time that the machine did not let it run, or, if that
    is longer, did not let the server run."""
    at = tab.evaluate("state => window.changes.filter(([, one]) => one === state).at(-1)[0]", state)
    return at - since - max(tab.evaluate("window.late"), server.waited_s(since, at) if server else 0.0)


class WaitingServer:
    """How long the event loop of the web process was ready to run and got no processor, as the kernel counts it."""

    def __init__(self, pid):
        self.file = Path(f"/proc/{pid}/schedstat")
        self.seen = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.over.wait(0.02):
            self.seen.append((time.time(), int(self.file.read_text().split()[1]) / 1e9))

    def waited_s(self, since, until):
        """Less than it was, by what it waited at both ends of this time between two looks."""
        waited = [s for at, s in self.seen if since <= at <= until]
        return waited[-1] - waited[0] if waited else 0.0

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def clocks(tab):
    return tab.locator("[data-ago], [data-since], [data-until]").all_inner_texts()


@pytest.mark.slow
def test_a_frozen_path_is_shown_within_ten_seconds_and_right_within_two_of_its_return(page, yard, path):
    job = yard.submit(job_spec(["true"], name="watched"))
    log_in(page, path.url)
    tabs = {}
    for address in pages(job):
        tabs[address] = tab = page.context.new_page()
        tab.goto(path.url + address)
        expect(tab.locator("#link-dot")).to_have_text("Live", timeout=60_000)
    jobs = tabs["/jobs/"]
    page.close()
    for tab in tabs.values():
        tab.evaluate(WATCH)
    path.freeze()
    frozen_at = time.time()
    until(lambda: all(state_of(tab) == "stale" for tab in tabs.values()), jobs)
    assert {
        address: s for address, tab in tabs.items() if (s := delay(tab, frozen_at, "stale")) > STALE_WITHIN_S
    } == {}
    for tab in tabs.values():
        assert re.fullmatch(r"No contact since \d\d:\d\d:\d\d", tab.locator("#link-dot").inner_text())
        assert tab.evaluate("getComputedStyle(document.querySelector('main')).filter") == "grayscale(1)"
    # What ticks says that something is known.
    ages = {address: clocks(tab) for address, tab in tabs.items()}
    assert any(ages.values())
    yard.submit(job_spec(["true"], name="while-you-were-away"))
    jobs.wait_for_timeout(max(FROZEN_S - (time.time() - frozen_at), 0) * 1000)
    for address, tab in tabs.items():
        assert state_of(tab) == "stale" and clocks(tab) == ages[address], address
        tab.evaluate("window.late = 0")
    [web] = yard.processes.of("web")
    with WaitingServer(web) as server:
        path.thaw()
        thawed_at = time.time()
        until(lambda: all(state_of(tab) == "live" for tab in tabs.values()), jobs)
    late = {address: delay(tab, thawed_at, "live", server) for address, tab in tabs.items()}
    assert {address: s for address, s in late.items() if s > RIGHT_WITHIN_S} == {}
    expect(jobs.get_by_role("link", name="while-you-were-away")).to_be_visible(timeout=2000)
    for address, tab in tabs.items():
        assert tab.evaluate("document.documentElement.dataset.stale") is None, address
