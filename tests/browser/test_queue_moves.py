"""Jobs moved in the queue in a browser: by keys, by dragging, and what the pages look like."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.utils import timezone

from jobs import services
from tests.browser.test_job_lists import browser, cast, database_beside_the_browser, project
from tests.harness.accessibility import violations
from tests.unit.console.views.example_rows import a_host, document

__all__ = ["browser", "cast", "database_beside_the_browser", "project"]


@pytest.fixture
def seen(page, live_server, browser, transactional_db, cast, project):
    """The queue of three jobs, in a browser in which an admin is logged in."""
    a_host(gpus=4)
    for name in ("first", "second", "third"):
        services.submit(project, cast.bob, document(name), "", None, timezone.now())
    session = browser("root").cookies[settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies(
        [{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}]
    )
    page.goto(f"{live_server.url}/jobs/queue")
    return page


def names(page):
    return page.locator("#queue tbody .name").all_inner_texts()


def confirm(page):
    page.get_by_role("button", name="Move 1 job").click()
    page.wait_for_selector("#queue")


def test_a_job_is_moved_by_keys_and_by_dragging(seen):
    button = seen.get_by_role("button", name="Move third up")
    button.focus()
    seen.keyboard.press("Enter")
    seen.wait_for_selector("text=Nothing is moved yet")
    assert seen.locator("#moved + .scroller .name").all_inner_texts() == ["third"]
    assert violations(seen) == []
    confirm(seen)
    assert names(seen) == ["first", "third", "second"]
    place = seen.locator("input[name=place]").bounding_box()
    behind = seen.get_by_role("button", name="Automatic order").bounding_box()
    assert place["x"] + place["width"] <= behind["x"], "nothing lies over the field"
    assert seen.get_by_text("moved here by root").count() == 1 and violations(seen) == []
    rows = seen.locator("tr[data-movable]")
    rows.nth(2).locator(".drag-handle").drag_to(rows.nth(0))
    seen.wait_for_selector("text=Nothing is moved yet")
    confirm(seen)
    assert names(seen) == ["second", "first", "third"]


def test_many_are_moved_and_the_page_fits_a_phone(seen):
    seen.set_viewport_size({"width": 360, "height": 800})
    assert seen.evaluate("document.documentElement.scrollWidth") <= 360
    for name in ("second", "third"):
        seen.get_by_label(f"Select {name}", exact=True).check()
    seen.get_by_role("button", name="To the top", exact=True).first.click()
    seen.get_by_role("button", name="Move 2 jobs").click()
    seen.wait_for_selector("#queue")
    assert names(seen) == ["second", "third", "first"]
    assert seen.evaluate("document.documentElement.scrollWidth") <= 360
