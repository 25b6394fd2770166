"""A headless Chromium for the tests of this folder: one per test process, a fresh profile per test."""

from __future__ import annotations

import pytest

from tests.harness.browser import headless_chromium


@pytest.fixture(scope="package")
def chromium(django_db_setup):
    """The database of the tests is made first: beside the event loop of a browser Django would refuse to."""
    with headless_chromium() as browser:
        yield browser


@pytest.fixture
def page(chromium):
    """A page that fails the test when a script of the product raised an error."""
    context = chromium.new_context(viewport={"width": 1200, "height": 800})
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.problems = []
    page.on("pageerror", lambda problem: page.problems.append(str(problem)))
    yield page
    context.close()
    assert page.problems == []
