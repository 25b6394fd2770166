"""Every page has a help of its own, as a page and as a dialog."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from console.presenters import help_pages
from tests.unit.console.views.test_page_matrix import DOWNLOADS, GET, LEADS_ON

ROOT = Path(__file__).resolve().parents[4]
TEXTS = ROOT / "templates" / "help" / "pages"
# The help needs no help.
WITHOUT = DOWNLOADS | LEADS_ON | {"help", "help-index"}


@pytest.mark.parametrize("page", sorted(set(GET) - WITHOUT))
def test_every_page_has_help_of_its_own(page):
    assert help_pages.topic_of(page) == page, (
        "Write templates/help/pages/NAME.html and its title in help_pages.py."
    )
    words = re.findall(r"\w+", re.sub(r"{%.*?%}|<[^>]+>", " ", (TEXTS / f"{page}.html").read_text()))
    assert len(words) >= 20, page


def test_no_two_helps_are_equal_and_none_is_for_nothing():
    texts = {path.stem: path.read_text() for path in TEXTS.glob("*.html")}
    assert set(texts) == set(help_pages.TITLES) <= set(GET) and len(set(texts.values())) == len(texts)


@pytest.mark.parametrize("topic", sorted(help_pages.TITLES))
def test_a_help_is_a_page_and_a_dialog(browser, topic):
    page = browser("loner").get(f"/help/on/{topic}")
    dialog = browser("loner").get(f"/help/on/{topic}", headers={"hx-request": "true"})
    assert page.status_code == dialog.status_code == 200
    assert page.text.count("<h1>") == 1 and "<html" not in dialog.text and 'id="dialog-title"' in dialog.text


def test_pages_lead_to_their_own_help(browser, cast):
    bob = browser("bob")
    assert 'href="/help/on/queue"' in bob.get("/jobs/queue").text
    # A form with errors is the page of its form; an error page has no help of its own.
    assert 'href="/help/on/account"' in bob.post("/account/tokens", {}).text
    assert 'href="/help/"' in bob.get("/nothing/here").text
    assert bob.get("/help/on/nothing-like-this").status_code == 404
