"""Ages on pages count from Trainyard's time, however the browser's own clock is set."""

from __future__ import annotations

import datetime

import pytest

from tests.browser.static_site import page_of, served

NOW = datetime.datetime(2026, 11, 22, 12, 0, 0, tzinfo=datetime.UTC)
MINUTES_AGO = (NOW - datetime.timedelta(minutes=5)).isoformat()


@pytest.mark.parametrize("wrong_s", [0, 7200, -3600, -86400])
def test_a_wrong_clock_of_the_browser_changes_no_age(page, wrong_s):
    head = f'<meta name="served-at" content="{NOW.isoformat()}">'
    times = f'<time data-ago="{MINUTES_AGO}">?</time><span data-since="{MINUTES_AGO}">?</span>'
    html = page_of("Times", [], "page.js", times).replace("<title>", f"{head}<title>")
    page.add_init_script(f"Date.now = () => {int((NOW.timestamp() + wrong_s) * 1000)} + performance.now()")
    with served(html) as address:
        page.goto(address)
        page.locator("time", has_text="5 min").wait_for()
        assert page.locator("time").inner_text().endswith("ago")
        assert page.locator("span").inner_text().startswith("5 min")
