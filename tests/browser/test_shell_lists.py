"""The tab with the shells of a job, and the files of a replica, in a real browser: small and wide, light and dark."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest
from django.conf import settings
from django.utils import timezone

from agents.ssh import files, keys
from agents.ssh.files import Entry, Listing
from jobs import shells
from tests.browser.looks import in_each_look
from tests.harness.accessibility import WCAG22, assert_accessible
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job, a_shell

__all__ = ["browser", "cast", "project"]


@pytest.fixture(scope="module", autouse=True)
def database_beside_the_browser():
    """Playwright runs an event loop in this thread, and Django refuses its database there unless it is told."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    yield
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def job(transactional_db, cast, project, monkeypatch):
    when = datetime(2026, 11, 23, 5, 0, tzinfo=UTC)
    found = Listing((Entry("flame.svg", "file", 20480, when), Entry("out", "directory", 4096, when)), 0)
    monkeypatch.setattr(keys, "private_key", lambda: None)
    monkeypatch.setattr(files, "list_files", lambda *given: found)
    job = a_job(project, cast.bob, name="bert", host=a_host("gpu-7"), replicas=3)
    run = job.runs.get(replica__name="workerpool0-0")
    a_shell(run, cast.bob)
    a_shell(run, cast.alice, "a" * 32, shared=True)
    over = a_shell(run, cast.bob, "b" * 32)
    shells.record_closed(over, "Nobody was there for 30 minutes.", timezone.now())
    return job


@pytest.fixture
def seen(page, live_server, browser, job):
    """A page of a browser in which Bob is logged in."""
    session = browser("bob").cookies[settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies(
        [{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}]
    )
    page.address = f"{live_server.url}/jobs/{job.pk}"
    return page


@in_each_look
@pytest.mark.parametrize("path", ["shells/", "files/workerpool0-0"])
def test_the_pages_fit_and_pass_axe(seen, path, width, theme):
    seen.set_viewport_size({"width": width, "height": 800})
    seen.emulate_media(color_scheme=theme)
    seen.goto(f"{seen.address}/{path}")
    seen.get_by_text("flame.svg" if "files" in path else "Nobody was there").first.wait_for()
    assert_accessible(seen, WCAG22)
    assert seen.evaluate("document.documentElement.scrollWidth") <= width


def test_a_shell_is_shared_and_closed_by_a_click(seen, job):
    seen.goto(f"{seen.address}/shells/")
    seen.get_by_role("button", name="Share", exact=True).click()
    seen.wait_for_url("**/shells/")
    assert seen.get_by_role("button", name="Stop sharing").count() == 2
    seen.get_by_role("button", name="Close", exact=True).last.click()
    seen.get_by_text("is being closed: Closed by bob.").wait_for()
