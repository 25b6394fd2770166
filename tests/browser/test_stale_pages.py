"""A page whose path is cut says so and since when; it is right again soon after the path is back.

All pages are tabs of one context over one path, which is frozen once: nothing is closed, and no new connection opens.
"""

from __future__ import annotations

import re
import time

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


def elapsed_until(true, page, limit_s):
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < limit_s + 30, "still not so"
        page.wait_for_timeout(50)
    return time.monotonic() - began


def test_a_frozen_path_is_shown_within_ten_seconds_and_right_within_two_of_its_return(page, yard, path):
    job = yard.submit(job_spec(["true"], name="watched"))
    log_in(page, path.url)
    tabs = {}
    for address in ("/jobs/", f"/jobs/{job}/", "/hosts/", "/hosts/1/"):
        tabs[address] = tab = page.context.new_page()
        tab.goto(path.url + address)
        expect(tab.locator("#link-dot")).to_have_text("Live", timeout=60_000)
    page.close()
    path.freeze()
    frozen_at = time.monotonic()
    watched = list(tabs.values())[0]

    def stale(tab):
        return tab.locator("#link-dot").get_attribute("data-state") == "stale"

    took = elapsed_until(lambda: all(stale(tab) for tab in tabs.values()), watched, STALE_WITHIN_S)
    assert took < STALE_WITHIN_S, took
    for address, tab in tabs.items():
        assert re.fullmatch(r"No contact since \d\d:\d\d:\d\d", tab.locator("#link-dot").inner_text()), (
            address
        )
        assert tab.evaluate("getComputedStyle(document.querySelector('main')).filter") == "grayscale(1)"
    # What ticks says that something is known.
    ages = {address: clocks(tab) for address, tab in tabs.items()}
    assert any(ages.values())
    yard.submit(job_spec(["true"], name="while-you-were-away"))
    watched.wait_for_timeout(max(FROZEN_S - (time.monotonic() - frozen_at), 0) * 1000)
    for address, tab in tabs.items():
        assert stale(tab) and clocks(tab) == ages[address], address
    path.thaw()

    def right():
        return all(tab.locator("#link-dot").inner_text() == "Live" for tab in tabs.values()) and (
            tabs["/jobs/"].get_by_role("link", name="while-you-were-away").count() == 1
        )

    took = elapsed_until(right, watched, RIGHT_WITHIN_S)
    assert took < RIGHT_WITHIN_S, took
    for address, tab in tabs.items():
        assert tab.evaluate("document.documentElement.dataset.stale") is None, address


def clocks(tab):
    return tab.locator("[data-ago], [data-since], [data-until]").all_inner_texts()
