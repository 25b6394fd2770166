"""A page says that it is live only where it has parts that change by themselves."""

from __future__ import annotations

from console.parts.registry import PAGES
from console.presenters.live_pages import LIVE_HEADS, LIVE_PAGES
from tests.harness import addresses
from tests.unit.console.test_strangers import no_host_answers, there

__all__ = ["no_host_answers", "there"]


def test_the_pages_that_are_said_to_be_live_have_live_parts():
    """A shell has a socket of its own."""
    assert LIVE_PAGES - {"shell"} == set(PAGES) - LIVE_HEADS
    assert set(PAGES) >= LIVE_HEADS


def test_every_other_page_says_since_when_it_stands_still(browser, there):
    root, wrong, looked_at = browser("root"), [], set()
    for name, address in addresses.pages(there).items():
        answer = root.get(address)
        if answer.status_code != 200 or answer.streaming or 'id="link-dot"' not in answer.text:
            continue
        looked_at.add(name)
        if ("data-still=" in answer.text) is (name in LIVE_PAGES):
            wrong.append(name)
    assert wrong == []
    assert {"job", "job-outputs", "models", "occupancy", "new-job", "machines", "shell"} <= looked_at
