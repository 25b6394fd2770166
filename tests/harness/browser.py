"""A headless Chromium: the one that is installed on the machine.

Tests prefer the shell, which is the same engine without the frame of a browser: a page in a new context costs 0.19 s of
processor time in it, and 0.42 s in the whole browser. Measurements are made in the browser that people use.
"""

from __future__ import annotations

import contextlib
import shutil
from urllib.parse import parse_qs

from playwright.sync_api import expect, sync_playwright

from tests.harness.product.product import PASSWORD

# A busy machine may be many times slower than this one: what `expect` waits for has as long as a click has.
PATIENCE_MS = 30_000
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


SHELLS = ("chromium-headless-shell",)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def installed(*names):
    return next(filter(None, map(shutil.which, names)), None)


@contextlib.contextmanager
def headless_chromium(whole=False):
    path = installed(*(BROWSERS if whole else SHELLS + BROWSERS))
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


def query_of(page):
    """What the address of the page asks for now. `page.url` follows a script that writes the address a moment later."""
    return parse_qs(page.evaluate("location.search").removeprefix("?"), keep_blank_values=True)


def log_in(page, url, name="ada"):
    page.goto(f"{url}/login")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url(lambda url: "/login" not in url)
