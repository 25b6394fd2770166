"""The page with the stacks of a job in a real browser: small and wide, light and dark, without scripts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.conf import settings

from agents.ssh import keys, stacks
from tests.browser.looks import in_each_look
from tests.harness.accessibility import WCAG22, assert_accessible
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job
from tests.unit.console.views.test_stacks import LOADER, REDUCE, process, run_of, seen

__all__ = ["browser", "cast", "project"]

ODD = stacks.Thread("MainThread", "active", ("save_a_very_large_checkpoint (checkpoint.py:31)", "x" * 180))


@pytest.fixture(scope="module", autouse=True)
def database_beside_the_browser():
    """Playwright runs an event loop in this thread, and Django refuses its database there unless it is told."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    yield
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def job(transactional_db, cast, project, monkeypatch):
    job = a_job(project, cast.bob, name="bert", host=a_host("gpu-7"), replicas=5)
    told = {run_of(job, 3).pk: seen(process(ODD)), run_of(job, 4).pk: seen(process(problem="slow"))}
    all_else = seen(process(REDUCE, LOADER))
    monkeypatch.setattr(keys, "private_key", lambda: None)
    monkeypatch.setattr(
        stacks,
        "look",
        lambda _target, _key, _deployment, runs, _until, _room: {
            run: told.get(run, all_else) for run in runs
        },
    )
    return job


@pytest.fixture
def visit(chromium, live_server, browser, job):
    """Opens the page of the stacks, in which Bob is logged in."""
    session = browser("bob").cookies[settings.SESSION_COOKIE_NAME].value
    cookie = {"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}
    contexts = []

    def open_page(**options):
        contexts.append(chromium.new_context(**options))
        contexts[-1].add_cookies([cookie])
        page = contexts[-1].new_page()
        page.goto(f"{live_server.url}/jobs/{job.pk}/")
        page.get_by_role("link", name="Stacks", exact=True).click()
        page.get_by_role("button", name="Take stacks", exact=True).click()
        page.get_by_text("4 of 5 replicas are seen").wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()


@in_each_look
def test_the_page_fits_and_passes_axe(visit, width, theme):
    page = visit(viewport={"width": width, "height": 800}, color_scheme=theme)
    assert_accessible(page, WCAG22)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_the_odd_one_is_first_and_the_text_is_downloaded(visit, job):
    page = visit(java_script_enabled=False)
    headings = page.locator("main h2").all_inner_texts()
    assert headings[:2] == ["workerpool1-2", "workerpool0-0, workerpool1-0…1"]
    with page.expect_download() as coming:
        page.get_by_role("link", name="Download as text").click()
    assert coming.value.suggested_filename == f"stacks-of-job-{job.pk}.txt"
    text = Path(coming.value.path()).read_text()
    assert text.index("save_a_very_large_checkpoint") < text.index("×3 in 3: workerpool0-0, workerpool1-0…1")
    assert "workerpool1-3: py-spy did not answer in time" in text
